"""A fold's schemas, as Arrow has them. All columns may be null, as those of Spark's frames."""

from functools import lru_cache

import pyarrow as pa

from include.fold.ddl import DEAD_LETTERS_DDL, event_ddl, output_ddl, state_ddl
from include.fold.definition import KeyedFold
from include.lake.columns import arrow_type


@lru_cache
def schema_of(ddl: str) -> pa.Schema:
    """Columns as Spark writes them: `key string, at_us bigint`."""
    return pa.schema(list(arrow_type(f"struct<{ddl}>")))


def event_schema(fold: KeyedFold) -> pa.Schema:
    """Events as they travel and wait: the record's columns, the fold's time, a key of its own."""
    return schema_of(event_ddl(fold))


def state_schema(fold: KeyedFold) -> pa.Schema:
    """States, a row for each key: `state_rows_ddl` of ddl.py, but for the bucket."""
    return schema_of(state_ddl(fold))


def output_schema(fold: KeyedFold) -> pa.Schema:
    """Outputs as they leave the fold: the record, when it was emitted, and (update) if removed."""
    return schema_of(output_ddl(fold))


# A dead letter, as `fold.emitted.DeadLetter` has it: the same for all streams.
DEAD_LETTERS = schema_of(DEAD_LETTERS_DDL)
