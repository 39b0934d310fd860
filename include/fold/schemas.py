"""A fold's schemas, as Arrow has them."""

import pyarrow as pa

from include.fold.ddl import DEAD_LETTERS_DDL
from include.fold.definition import EMITTED_AT_US, KEY, REMOVED, KeyedFold
from include.lake.columns import arrow_type


def event_schema(fold: KeyedFold) -> pa.Schema:
    """Events as they travel and wait: the record's columns, the fold's time, a key of its own.

    All nullable, as Spark's frames are: what may be missing was decided at ingest.
    """
    schema = pa.schema([(c.name, arrow_type(c.kind)) for c in fold.event_columns])
    if fold.time_us not in schema.names:
        schema = schema.append(pa.field(fold.time_us, pa.int64()))
    if fold.keys.is_derived:
        schema = schema.append(pa.field(KEY, arrow_type(fold.keys.kind)))
    return schema


def state_schema(fold: KeyedFold) -> pa.Schema:
    """States, a row for each key: `state_rows_ddl` of ddl.py, but for the bucket."""
    # All nullable: a key without a state has nulls below its null struct.
    state = pa.struct([(c.name, arrow_type(c.kind)) for c in fold.state_columns])
    return pa.schema(
        [
            ("key", arrow_type(fold.keys.kind)),
            ("state", state),
            ("changed_at_us", pa.int64()),
            ("timeout_at_us", pa.int64()),
            *((column.name, arrow_type(column.kind)) for column in fold.beside),
        ]
    )


def output_schema(fold: KeyedFold) -> pa.Schema:
    """Outputs as they leave the fold: the record, when it was emitted, and (update) if removed."""
    # A removed key has a row without values, so only the key is never null there.
    nullable = fold.output_mode == "update"
    schema = pa.schema(
        [
            pa.field(
                c.name,
                arrow_type(c.kind),
                c.nullable or (nullable and c.name not in fold.keys.names),
            )
            for c in fold.output_columns
        ]
    ).append(pa.field(EMITTED_AT_US, pa.int64(), nullable=False))
    if fold.output_mode == "update":
        schema = schema.append(pa.field(REMOVED, pa.bool_(), nullable=False))
    return schema


def schema_of(ddl: str) -> pa.Schema:
    """Plain columns as Spark writes them: `key string, at_us bigint`."""
    columns = (column.split() for column in ddl.split(", "))
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns])


# A dead letter, as `fold.emitted.DeadLetter` has it: the same for all streams.
DEAD_LETTERS = schema_of(DEAD_LETTERS_DDL)
