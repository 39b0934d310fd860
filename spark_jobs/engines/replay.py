"""The replay engine: the same fold over a bounded set of events, from given states."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.bucket import no_events, settle
from include.fold.definition import DEAD_LETTERS_DDL, KeyedFold, output_ddl, state_ddl
from include.fold.keys import bucket_ids
from include.fold.states import state_schema
from spark_jobs.engines.engine import Stage
from spark_jobs.engines.packed_files import BronzeEvents
from spark_jobs.engines.packing import any_stream, bucket_of, from_stream, to_stream, unpack
from spark_jobs.engines.state_rows import states_from_rows

REPLAYED_DDL = (
    "bucket int, outputs binary, states binary, rows_folded bigint, dead_letters binary, "
    "rows_duplicate bigint"
)


def replay_fold(
    events: BronzeEvents,
    fold: KeyedFold,
    buckets: int,
    until_us: int,
    base: DataFrame | None = None,
) -> Stage:
    """Fold all of `events` before `until_us` onto the states of `base`; timeouts before it fire."""
    partitions = events.spark.conf.get("spark.sql.shuffle.partitions")
    ids = bucket_ids(buckets, int(str(partitions)))
    packed = events.pack(fold, ids).groupBy("bucket")

    def fold_onto(key: tuple[pa.Scalar, ...], packed: pa.Table, states: pa.Table) -> pa.Table:
        return _replay_bucket(fold, key[0].as_py(), packed, base=states, until_us=until_us)

    def fold_bucket(key: tuple[pa.Scalar, ...], packed: pa.Table) -> pa.Table:
        return fold_onto(key, packed, state_schema(fold).empty_table())

    if base is None:  # nothing to shuffle beside the events
        folded = packed.applyInArrow(fold_bucket, REPLAYED_DDL)
    else:
        # Whoever wrote the base may have had other buckets.
        states = base.withColumn("bucket", bucket_of(ids, "key")).groupBy("bucket")
        folded = packed.cogroup(states).applyInArrow(fold_onto, REPLAYED_DDL)
    folded.persist()
    counts = [F.coalesce(F.sum(name), F.lit(0)) for name in ("rows_folded", "rows_duplicate")]
    try:
        rows_folded, rows_duplicate = folded.agg(*counts).collect()[0]
    except BaseException:
        folded.unpersist()
        raise
    return Stage(
        unpack(folded, "outputs", output_ddl(fold)),
        unpack(folded, "states", state_ddl(fold)),
        unpack(folded, "dead_letters", DEAD_LETTERS_DDL) if fold.keeps_dead_letters else None,
        rows_folded=rows_folded,
        held=folded,
        rows_duplicate=rows_duplicate,
    )


def _replay_bucket(
    fold: KeyedFold, bucket: int, packed: pa.Table, base: pa.Table, until_us: int
) -> pa.Table:
    streams = [from_stream(stream) for stream in packed["events"].to_pylist()]
    events = pa.concat_tables([no_events(fold), *streams])
    states = states_from_rows(fold, base)
    complete = settle(fold, lambda: states, events, until_us, timeouts_due=fold.changes_by_clock)
    rows = to_stream(states.rows())
    return pa.table(
        {
            "bucket": pa.array([bucket], pa.int32()),
            "outputs": pa.array([any_stream(complete.outputs)], pa.binary()),
            "states": pa.array([rows], pa.binary()),
            "rows_folded": pa.array([complete.rows_folded], pa.int64()),
            "dead_letters": pa.array([any_stream(complete.dead_letters)], pa.binary()),
            "rows_duplicate": pa.array([complete.rows_duplicate], pa.int64()),
        }
    )
