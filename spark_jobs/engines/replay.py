"""The replay engine: the same fold over a bounded set of events, from given states.

No checkpoint and no state store: states and events of a bucket meet in one cogroup. It
serves backfills and reseeds, and it is the oracle for the live engine.

States of an older schema as states of the new one, by the stream's own `migrate_state`.

Key, timeout and time of the last change stay as they are: what a key has seen does not change.
So does what it has beside its state: timers by their names, and values seen where `by` is the same.
"""

from collections.abc import Iterable, Iterator
from decimal import localcontext
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.fold.admission import NEVER_US
from include.fold.arrow_values import conformed, decode, states_to_migrate
from include.fold.bucket import no_events, settle
from include.fold.definition import (
    DEAD_LETTERS_DDL,
    Key,
    KeyedFold,
    MigrateState,
    output_ddl,
    state_rows_ddl,
)
from include.fold.failures import ARITHMETIC
from include.fold.group_state import TIMERS
from include.fold.keys import bucket_ids
from include.fold.records import Column
from include.fold.states import NO_STATE_US, States, state_schema
from include.lake.columns import arrow_type, sql_name
from spark_jobs.engines.engine import Stage
from spark_jobs.engines.packed_files import BronzeEvents
from spark_jobs.engines.packing import any_stream, bucket_of, from_stream, to_stream, unpack
from spark_jobs.engines.state_rows import states_from_rows, states_to_rows

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
    """Fold all of `events` before `until_us`, starting from `base`.

    Timeouts before `until_us` fire as well; both are on the fold's clock. `base` has
    `state_rows_ddl(fold)`; None is the empty state. Rows at or after `until_us` are left out,
    and so must be those that `base` stands for: give `events` without them.
    """
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
        unpack(folded, "states", state_rows_ddl(fold)),
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
    settled = settle(fold, lambda: states, events, until_us, timeouts_due=fold.changes_by_clock)
    rows = to_stream(states_to_rows(states, bucket))
    return pa.table(
        {
            "bucket": pa.array([bucket], pa.int32()),
            "outputs": pa.array([any_stream(settled.outputs)], pa.binary()),
            "states": pa.array([rows], pa.binary()),
            "rows_folded": pa.array([settled.rows_folded], pa.int64()),
            "dead_letters": pa.array([any_stream(settled.dead_letters)], pa.binary()),
            "rows_duplicate": pa.array([settled.rows_duplicate], pa.int64()),
        }
    )


class MigrationError(RuntimeError):
    """`migrate_state` failed for a key, or made of its state what the schema does not take."""


def migrated_states(rows: DataFrame, fold: KeyedFold, migrate: MigrateState) -> DataFrame:
    """Rows of a savepoint of any state schema as rows of `state_rows_ddl(fold)`.

    Lazy: a job that reads them fails with MigrationError in its message when a state cannot
    be mapped.
    """

    def migrate_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from states_to_rows(migrated(batch, fold, migrate), bucket=0).to_batches()

    return rows.mapInArrow(migrate_all, state_rows_ddl(fold))


def migrated(batch: pa.RecordBatch, fold: KeyedFold, migrate: MigrateState) -> States:
    """The new states of a savepoint's rows. MigrationError names the key and what is wrong."""
    states = States(fold)
    keys = decode(fold.keys.shape, conformed(batch["key"], arrow_type(fold.keys.kind)), "key")
    columns = [keys, states_to_migrate(batch["state"], fold), batch["changed_at_us"].to_pylist()]
    timeouts_us = batch["timeout_at_us"].to_pylist()
    columns += [timeouts_us, _beside(batch, fold)]
    for key, old, changed_at_us, timeout_us, beside in zip(*columns, strict=True):
        # A key that has only a timeout has nothing to map.
        new = None if old is None else _new_state(key, old, fold, migrate=migrate)
        never = timeout_us is None or not fold.times_out
        _put(states, key, new, changed_at_us, NEVER_US if never else timeout_us)
        for column, value in zip(fold.beside, beside, strict=True):
            states.put_beside(column.name, key, value)
    return states


def _beside(batch: pa.RecordBatch, fold: KeyedFold) -> list[tuple[Any, ...]]:
    """What each key has beside its state, where that is of the same kind as it is now."""
    columns = [_kept(batch, column) for column in fold.beside]
    return list(zip(*columns, strict=True)) or [()] * batch.num_rows


def _kept(batch: pa.RecordBatch, column: Column) -> list[Any]:
    if column.name not in batch.schema.names:
        return [None] * batch.num_rows
    stored = batch[column.name]
    if column.name == TIMERS:
        stored = _by_name(stored, arrow_type(column.kind))
    if sql_name(stored.type) != column.kind:
        return [None] * batch.num_rows
    return decode(column.shape, conformed(stored, arrow_type(column.kind)), column.name)


def _by_name(timers: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    """The timers that are declared now, those of them that were before as they are set."""
    before = dict(zip((field.name for field in timers.type), timers.flatten(), strict=True))
    columns = [before.get(field.name, pa.nulls(len(timers), field.type)) for field in wanted]
    is_none_set = reduce(pc.and_, [pc.is_null(column) for column in columns])
    return pa.StructArray.from_arrays(columns, fields=[*wanted], mask=is_none_set)


def _new_state(key: Key, old: dict[str, Any], fold: KeyedFold, migrate: MigrateState) -> Any:
    try:
        with localcontext(ARITHMETIC):
            new = migrate(old)
    except Exception as error:  # anything: it is the user's code, and only the key is ours to add
        raise MigrationError(f"{_at(key)}: {type(error).__name__}: {error}") from error
    if not isinstance(new, fold.state):
        raise MigrationError(f"{_at(key)}: it returned {new!r}, and not a {fold.state.__name__}")
    return new


def _put(states: States, key: Key, new: Any, changed_at_us: int | None, timeout_us: int) -> None:
    try:
        states.put(key, new, NO_STATE_US if changed_at_us is None else changed_at_us, timeout_us)
    except (TypeError, UnicodeEncodeError) as error:
        raise MigrationError(f"{_at(key)}: it returned {new!r}: {error}") from error


def _at(key: Key) -> str:
    return f"migrate_state, for key {key!r}"
