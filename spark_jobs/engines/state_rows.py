"""States as rows, one per key: how savepoints, replay and initial states hold them."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from include.fold.arithmetic import arithmetic
from include.fold.bucket import outputs_table
from include.fold.conform import conformed_table
from include.fold.ddl import output_ddl
from include.fold.definition import KeyedFold
from include.fold.schemas import output_schema, state_schema
from include.fold.settle import Emitted, project
from include.fold.states import States
from spark_jobs.engines.packing import bucket_of, to_stream

GROUPED_DDL = "bucket int, states binary"


def group_states(rows: DataFrame, fold: KeyedFold, ids: Sequence[int]) -> DataFrame:
    """Rows of `state_rows_ddl(fold)` as one row per bucket of `ids` (GROUPED_DDL)."""

    def group(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return pa.table(
            {"bucket": pa.array([key[0].as_py()], pa.int32()), "states": [to_stream(rows)]}
        )

    # Whoever wrote the rows may have had other buckets.
    rebucketed = rows.withColumn("bucket", bucket_of(ids, "key"))
    return rebucketed.groupBy("bucket").applyInArrow(group, GROUPED_DDL)


def project_states(rows: DataFrame, fold: KeyedFold) -> DataFrame:
    """The update table's rows (`output_ddl(fold)`) of states in rows of `state_rows_ddl(fold)`."""

    def project_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from projected(fold, pa.Table.from_batches([batch])).to_batches()

    return rows.mapInArrow(project_all, output_ddl(fold))


def projected(fold: KeyedFold, rows: pa.Table) -> pa.Table:
    """The same of an Arrow table: rows of `output_schema(fold)`."""
    known = [k for k in states_from_rows(fold, rows) if k.state is not None]
    with arithmetic("project()"):  # as in the fold
        rows_of_known = [project(fold, k.key, k.state) for k in known]
    emitted = Emitted(
        rows_of_known,
        [k.changed_at_us for k in known],
        [False] * len(known),
    )
    table = outputs_table(fold, emitted)
    return output_schema(fold).empty_table() if table is None else table


def states_from_rows(fold: KeyedFold, rows: pa.Table) -> States:
    """The states that rows of `state_rows_ddl(fold)` hold. An initial state has nothing beside them."""
    schema = state_schema(fold)
    for column in fold.beside:
        if column.name not in rows.column_names:
            field = schema.field(column.name)
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return States(fold, conformed_table(rows.select(schema.names), schema).combine_chunks())


def states_to_rows(states: States, bucket: int) -> pa.Table:
    """`states` as rows of `state_rows_ddl(fold)`."""
    rows = states.rows()
    return rows.add_column(0, "bucket", pa.array([bucket] * rows.num_rows, pa.int32()))
