"""States as rows, one per key: how savepoints, replay and initial states hold them."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from include.fold.admission import NEVER_US
from include.fold.bucket import outputs_table
from include.fold.ddl import output_ddl
from include.fold.definition import KeyedFold
from include.fold.schemas import arrow_schema, output_schema
from include.fold.settle import Emitted, project
from include.fold.states import NO_STATE_US, States
from include.lake.columns import arrow_type
from spark_jobs.engines.packing import bucket_of, to_stream

GROUPED_DDL = "bucket int, states binary"


def group_states(rows: DataFrame, fold: KeyedFold, ids: Sequence[int]) -> DataFrame:
    """Rows of `state_rows_ddl(fold)` as one row per bucket of `ids` (GROUPED_DDL)."""

    def group(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return pa.table(
            {"bucket": pa.array([key[0].as_py()], pa.int32()), "states": [to_stream(rows)]}
        )

    # Whoever wrote the rows may have had other buckets.
    rebucketed = rows.withColumn("bucket", bucket_of("key", ids))
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
    emitted = Emitted(
        [project(fold, k.key, k.state) for k in known],
        [k.changed_at_us for k in known],
        [False] * len(known),
    )
    table = outputs_table(fold, emitted)
    return output_schema(fold).empty_table() if table is None else table


def states_from_rows(fold: KeyedFold, rows: pa.Table) -> States:
    """The states that rows of `state_rows_ddl(fold)` hold."""
    states = rows["state"].combine_chunks()
    columns = [pc.struct_field(states, column.name).to_pylist() for column in fold.state_columns]
    changed_at_us = pc.if_else(states.is_null(), NO_STATE_US, rows["changed_at_us"])
    timeouts_us = pc.fill_null(rows["timeout_at_us"], NEVER_US)
    return States(
        fold,
        rows["key"].to_pylist(),
        columns,
        changed_at_us.to_pylist(),
        timeouts_us.to_pylist() if fold.times_out else None,
    )


def states_to_rows(fold: KeyedFold, states: States, bucket: int) -> pa.Table:
    """`states` as rows of `state_rows_ddl(fold)`."""
    fields = arrow_schema(fold.state_columns)
    arrays = [pa.array(c, field.type) for c, field in zip(states.columns, fields, strict=True)]
    absent = pa.array(
        [changed_us == NO_STATE_US for changed_us in states.changed_at_us], pa.bool_()
    )
    never = pa.scalar(None, pa.int64())
    timeouts_us = pa.array(
        states.timeouts_us if fold.times_out else [NEVER_US] * len(states), pa.int64()
    )
    return pa.table(
        {
            "bucket": pa.array([bucket] * len(states), pa.int32()),
            "key": pa.array(states.keys, arrow_type(fold.key_column.kind)),
            "state": pa.StructArray.from_arrays(arrays, fields=_nullable(fields), mask=absent),
            "changed_at_us": pc.if_else(absent, never, pa.array(states.changed_at_us, pa.int64())),
            "timeout_at_us": pc.if_else(pc.equal(timeouts_us, NEVER_US), never, timeouts_us),
        }
    )


def _nullable(schema: pa.Schema) -> list[pa.Field]:
    """A key without a state has nulls below its null struct."""
    return [field.with_nullable(True) for field in schema]
