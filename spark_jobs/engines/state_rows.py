"""States as rows, one per key, and as Spark's state store has them, per bucket; the fold onto such rows.

Workers import this file: it must stay light.
"""

import atexit
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import localcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.arrow_values import event_schema, outputs_table, project, state_schema
from include.fold.bucket import fold_complete, no_events
from include.fold.definition import (
    BUCKET_STATE,
    DEAD_LETTERS_DDL,
    KEYS,
    Emitted,
    KeyedFold,
    output_ddl,
    state_ddl,
    state_rows_ddl,
)
from include.fold.failures import ARITHMETIC, BrokenInvariantError
from include.fold.keys import bucket_ids
from include.fold.states import States
from include.lake.errors import LakeError, SettingsError
from include.lake.paths import files_of
from spark_jobs.engines.engine import Stage
from spark_jobs.engines.packing import any_stream, bucket_of, from_stream, to_stream, unpack

if TYPE_CHECKING:
    from spark_jobs.engines.packed_files import BronzeEvents

GROUPED_DDL = "bucket int, states binary"


def group_states(rows: DataFrame, fold: KeyedFold, ids: Sequence[int]) -> DataFrame:
    """Return rows of `state_ddl(fold)` as one row per bucket of `ids` (GROUPED_DDL)."""

    def group(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return pa.table(
            {"bucket": pa.array([key[0].as_py()], pa.int32()), "states": [to_stream(rows)]}
        )

    # The rows may have been written for other buckets.
    rebucketed = rows.withColumn("bucket", bucket_of(ids, "key"))
    return rebucketed.groupBy("bucket").applyInArrow(group, GROUPED_DDL)


def projected(fold: KeyedFold, rows: pa.Table) -> pa.Table:
    """Return an update table's rows (`output_schema(fold)`) of states (`state_schema(fold)`)."""
    known = [k for k in states_from_rows(fold, rows) if k.state is not None]
    with localcontext(ARITHMETIC):  # as in the fold
        rows_of_known = [project(fold, k.key, k.state) for k in known]
    changed_at_us = [k.changed_at_us for k in known]
    return outputs_table(fold, Emitted(rows_of_known, changed_at_us, [False] * len(known)))


def states_from_rows(fold: KeyedFold, rows: pa.Table) -> States:
    """Return the states in rows of `state_ddl(fold)`."""
    schema = state_schema(fold)
    return States(fold, rows.select(schema.names).cast(schema).combine_chunks())


# Spark hands bytes to Python a character at a time, at 60 to 190 MB/s: fewer cross if compressed. For
# less than this the start of a buffer costs more.
COMPRESSED_FROM_BYTES = 16 * 1024


class StoredBucket(NamedTuple):
    """A value of BUCKET_SCHEMA: the instant until which a bucket is folded, its one timer, its states and events."""

    folded_until_us: int
    timer_ms: int | None
    keys: int
    waiting: int  # events
    states: bytes | None  # without the keys, in their order; None without any
    events: bytes | None  # None when none wait


def packed_states(fold: KeyedFold, states: pa.Table) -> bytes:
    """Return the columns of `state_schema(fold)` but the key, as the state store has them."""
    absent = ["key"] if fold.times_out else ["key", "timeout_at_us"]
    return packed(states.drop_columns(absent))


def packed(rows: pa.Table) -> bytes:
    """Return `rows` as the state store has them: an Arrow stream, compressed where that pays."""
    return to_stream(rows, "zstd" if rows.nbytes >= COMPRESSED_FROM_BYTES else None)


def unpacked_states(fold: KeyedFold, keys: bytes | None, stored: StoredBucket) -> pa.Table:
    """Return rows of `state_schema(fold)`; BrokenInvariantError when keys and states are not of one bucket."""
    rows = state_schema(fold).empty_table() if stored.states is None else from_stream(stored.states)
    known = [] if keys is None else from_stream(keys)["key"]
    if not rows.num_rows == len(known) == stored.keys:
        raise BrokenInvariantError(
            f"a bucket of {fold.stream} has {len(known)} keys and {rows.num_rows} states, and not "
            f"{stored.keys}: put its checkpoint back from a copy, or rebuild the state",
            code="unreadable_checkpoint",
            subject=fold.stream,
            command=f"./stateful rebuild {fold.stream} --apply",
        )
    rows = rows.add_column(0, "key", known)
    if not fold.times_out:
        rows = rows.append_column("timeout_at_us", pa.nulls(rows.num_rows, pa.int64()))
    schema = state_schema(fold)
    return rows.select(schema.names).cast(schema)


class PendingEventsError(SettingsError):
    """Pending events do not fit the stream's event record any more."""

    code = "settings_changed"


def pending_events(fold: KeyedFold, stream: bytes | None) -> pa.Table:
    """Return the events in an Arrow stream; PendingEventsError where a field does not fit.

    A field that was dropped is left out, one that was added is null.
    """
    schema = event_schema(fold)
    found = schema.empty_table() if stream is None else from_stream(stream)
    if found.schema != schema:
        refuse_other_events(fold, found.schema)
        for field in schema:
            if field.name not in found.schema.names:
                found = found.append_column(field, pa.nulls(found.num_rows, field.type))
        found = found.select(schema.names)
    for column in fold.event_columns:
        if not column.nullable and found[column.name].null_count:
            raise _other_field(fold, column.name)
    return found


def refuse_other_events(fold: KeyedFold, was: pa.Schema) -> None:
    """Raise PendingEventsError when pending events of that schema do not fit the fold."""
    for column, field in zip(fold.event_columns, event_schema(fold), strict=False):
        is_there = field.name in was.names
        if was.field(field.name).type != field.type if is_there else not column.nullable:
            raise _other_field(fold, field.name)


def _other_field(fold: KeyedFold, name: str) -> PendingEventsError:
    return PendingEventsError(
        f"{fold.event.__name__}.{name} is not what it was in events that may still wait in the "
        f"state of {fold.stream}: declare it as it was, a new one `| None`; or rebuild",
        subject=fold.stream,
        command=f"./stateful rebuild {fold.stream} --apply",
    )


def read_states(
    session: SparkSession, checkpoint: str, fold: KeyedFold, batch_id: int | None = None
) -> DataFrame:
    """Read the states after the last batch, or that one, as rows with their buckets."""
    buckets = _stored(session, checkpoint, BUCKET_STATE, batch_id)
    states = buckets.where("keys > 0").withColumnsRenamed({"keys": "count"})
    keys = _stored(session, checkpoint, KEYS, batch_id)
    return _unpacked(states.join(keys, "bucket", "left"), fold)


def read_waiting(session: SparkSession, checkpoint: str, batch_id: int | None = None) -> DataFrame:
    """Read the number of pending events in each bucket, and the events, as an Arrow stream."""
    stored = _stored(session, checkpoint, BUCKET_STATE, batch_id)
    return stored.select("bucket", "waiting", "events")


# Characters of a path that a URI encodes.
ENCODED = re.compile(r"""[\s"#<>?`{}]""")


def _stored(
    session: SparkSession, checkpoint: str, variable: str, batch_id: int | None
) -> DataFrame:
    """Read a state variable: each bucket with the fields of its value."""
    commits = fs.FileSelector("commits", allow_not_found=True)
    if not files_of(checkpoint).get_file_info(commits):
        raise LakeError(f"no batch of {checkpoint} has stored a state yet", code="nothing_there")
    # Starts what the state reader needs in a new session (SPARK-58973).
    _ = session.streams.active
    reader = session.read.format("statestore").option("stateVarName", variable)
    if batch_id is not None:
        reader = reader.option("batchId", batch_id)
    return reader.load(readable(checkpoint)).select("key.bucket", "value.*")


@cache
def readable(checkpoint: str) -> str:
    """Return the path, or a link to it without characters that Spark 4.2's state reader takes for %20 and the like."""
    if "://" in checkpoint or not ENCODED.search(checkpoint):
        return checkpoint
    folder = TemporaryDirectory(prefix="checkpoint-")
    atexit.register(folder.cleanup)
    link = Path(folder.name, "link")
    link.symlink_to(checkpoint)
    return str(link)


def _unpacked(buckets: DataFrame, fold: KeyedFold) -> DataFrame:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket, keys, *stored in zip(*(c.to_pylist() for c in batch), strict=True):
                states = unpacked_states(fold, keys, StoredBucket(*stored))
                of_bucket = pa.array([bucket] * states.num_rows, pa.int32())
                yield from states.add_column(0, "bucket", of_bucket).to_batches()

    columns = ("folded_until_us", "timer_ms", "count", "waiting", "states", "events")
    return buckets.select("bucket", "keys", *columns).mapInArrow(rows, state_rows_ddl(fold))


REPLAYED_DDL = (
    "bucket int, outputs binary, states binary, rows_folded bigint, dead_letters binary, "
    "rows_duplicate bigint"
)


def replay_fold(
    events: "BronzeEvents",
    fold: KeyedFold,
    buckets: int,
    until_us: int,
    base: DataFrame | None = None,
) -> Stage:
    """Fold all of `events` before `until_us` onto the states of `base` (None: none); timeouts before it fire."""
    partitions = events.spark.conf.get("spark.sql.shuffle.partitions")
    ids = bucket_ids(buckets, int(str(partitions)))
    packed = events.pack(fold, ids).groupBy("bucket")

    def fold_onto(key: tuple[pa.Scalar, ...], packed: pa.Table, states: pa.Table) -> pa.Table:
        return _replay_bucket(fold, key[0].as_py(), packed, base=states, until_us=until_us)

    def fold_bucket(key: tuple[pa.Scalar, ...], packed: pa.Table) -> pa.Table:
        return fold_onto(key, packed, state_schema(fold).empty_table())

    if base is None:  # nothing to shuffle but the events
        folded = packed.applyInArrow(fold_bucket, REPLAYED_DDL)
    else:
        # They may have been written for other buckets.
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
    complete = fold_complete(
        fold, lambda: states, events, until_us, timeouts_due=fold.changes_by_clock
    )
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
