"""The replay engine: the same fold over a bounded set of events, from given states.

No checkpoint and no state store: states and events of a bucket meet in one cogroup. It
serves backfills and reseeds, and it is the oracle for the live engine.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.engines.bucket import no_events, settle
from spark_jobs.engines.packing import bucket_of, from_stream, pack_events, to_stream, unpack
from spark_jobs.engines.schemas import arrow_schema, arrow_type, output_ddl, state_rows_ddl
from spark_jobs.fold.buckets import bucket_ids
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.fold.states import States

REPLAYED_DDL = "bucket int, outputs binary, states binary, rows_folded bigint"


class Replayed(NamedTuple):
    """What a replay came to. The frames are lazy: persist `folded` to run the fold once."""

    folded: DataFrame  # REPLAYED_DDL
    outputs: DataFrame  # output_ddl(fold)
    states: DataFrame  # state_rows_ddl(fold)


def replay_fold(
    bronze: DataFrame,
    fold: KeyedFold,
    buckets: int,
    until_us: int,
    base: DataFrame | None = None,
) -> Replayed:
    """Fold all rows of the bounded frame `bronze` before `until_us`, starting from `base`.

    `base` has `state_rows_ddl(fold)`; None is the empty state. Events at or after `until_us`
    are left out; those before must not be in `base` already.
    """
    session = bronze.sparkSession
    states = base
    if states is None:
        states = session.createDataFrame([], state_rows_ddl(fold))
    partitions = session.conf.get("spark.sql.shuffle.partitions")
    ids = bucket_ids(buckets, int(str(partitions)))
    # Whoever wrote the base may have had other buckets.
    states = states.withColumn("bucket", bucket_of("key", ids))

    def fold_bucket(key: tuple[pa.Scalar, ...], packed: pa.Table, states: pa.Table) -> pa.Table:
        return _replay_bucket(fold, key[0].as_py(), packed, states, until_us)

    before = bronze.where(F.unix_micros("event_time") < F.lit(until_us))
    folded = (
        pack_events(before, fold, ids, late_after_us=None)
        .groupBy("bucket")
        .cogroup(states.groupBy("bucket"))
        .applyInArrow(fold_bucket, REPLAYED_DDL)
    )
    return Replayed(
        folded,
        unpack(folded, "outputs", output_ddl(fold)),
        unpack(folded, "states", state_rows_ddl(fold)),
    )


def _replay_bucket(
    fold: KeyedFold, bucket: int, packed: pa.Table, base: pa.Table, until_us: int
) -> pa.Table:
    streams = [from_stream(stream) for stream in packed["events"].to_pylist()]
    events = pa.concat_tables([no_events(fold), *streams])
    states = states_from_rows(fold, base)
    settled = settle(fold, lambda: states, events, until_us)
    outputs = None if settled.outputs is None else to_stream(settled.outputs)
    rows = to_stream(states_to_rows(fold, states, bucket))
    return pa.table(
        {
            "bucket": pa.array([bucket], pa.int32()),
            "outputs": pa.array([outputs], pa.binary()),
            "states": pa.array([rows], pa.binary()),
            "rows_folded": pa.array([settled.rows_folded], pa.int64()),
        }
    )


def states_from_rows(fold: KeyedFold, rows: pa.Table) -> States:
    """The states that rows of `state_rows_ddl(fold)` hold."""
    fields = rows["state"].combine_chunks()
    columns = [pc.struct_field(fields, column.name).to_pylist() for column in fold.state_columns]
    return States(fold, rows["key"].to_pylist(), columns, rows["changed_at_us"].to_pylist())


def states_to_rows(fold: KeyedFold, states: States, bucket: int) -> pa.Table:
    """`states` as rows of `state_rows_ddl(fold)`."""
    fields = arrow_schema(fold.state_columns)
    arrays = [pa.array(c, field.type) for c, field in zip(states.columns, fields, strict=True)]
    return pa.table(
        {
            "bucket": pa.array([bucket] * len(states), pa.int32()),
            "key": pa.array(states.keys, arrow_type(fold.key_column.kind)),
            "state": pa.StructArray.from_arrays(arrays, fields=list(fields)),
            "changed_at_us": pa.array(states.changed_at_us, pa.int64()),
        }
    )
