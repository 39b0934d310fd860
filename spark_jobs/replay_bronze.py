"""Replay pinned bronze from a base, with savepoints on the way: what recompute and reseed share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from include.findings import Finding, record_findings
from include.instants import MICROSECOND, instant_of
from include.lake import Lake, LakeError
from include.savepoints.bronze_pin import BronzePin
from include.savepoints.choose_base import Base
from include.savepoints.identity import StreamIdentity
from include.savepoints.manifest import Savepoint, mark_deleted, savepoints_of
from include.streams import SettingsError, Stream
from spark_jobs.engines.packing import INSTANTS
from spark_jobs.engines.replay import Replayed, replay_fold
from spark_jobs.fold.definition import KeyedFold
from spark_jobs.lake.initial_state import read_initial_state, state_rows
from spark_jobs.lake.savepoints import (
    SavepointError,
    read_savepoint,
    savepoint_at,
    savepoint_states,
    write_savepoint,
)
from spark_jobs.lake.tables import RangeChange
from spark_jobs.migrated_state import migrated_states
from spark_jobs.stream_definition import load_definition


class Planned(Protocol):
    """A plan that replays from a base."""

    @property
    def base(self) -> Base: ...


P = TypeVar("P", bound=Planned)


def plan_with_sound_base(spark: SparkSession, lake: Lake, run_id: str, plan: Callable[[], P]) -> P:
    """The plan, made again for as long as its savepoint proves damaged: others serve as well."""
    while True:
        planned = plan()
        base = planned.base.savepoint
        if base is None or _sound_rows(spark, lake, run_id, base) is not None:
            return planned


def _sound_rows(
    spark: SparkSession, lake: Lake, run_id: str, savepoint: Savepoint
) -> DataFrame | None:
    """The rows of a savepoint. A damaged one (None) is struck off the manifest, with a finding."""
    try:
        return read_savepoint(spark, lake, savepoint)
    except SavepointError as error:
        mark_deleted(lake, [savepoint.savepoint_id])
        found = Finding(
            finding="savepoint_damaged",
            severity="warning",
            detail=f"{error}. It is struck off ops/savepoints, and another one takes its place",
            action="nothing, if you do not know of it; else look after the lake's storage",
        )
        record_findings(lake, run_id, savepoint.stream, [found])
        return None


@dataclass(frozen=True)
class Replay:
    """What is replayed: of which stream, over which bronze, from which base."""

    lake: Lake
    stream: Stream
    fold: KeyedFold
    identity: StreamIdentity
    pin: BronzePin
    base: Base
    run_id: str
    origin: str  # recompute or reseed

    @property
    def lineage(self) -> str:
        """What the states come of; see `include/savepoints/lineage.py`."""
        return self.base.lineage(self.identity.code)


@dataclass
class Outcome:
    """What a replay came to; `outputs` are those emitted from `emit_from_us` on."""

    outputs: DataFrame
    states: DataFrame  # at `until`
    events: int  # bronze rows that those stand for
    rows_read: int
    savepoint_id: str


def stops_on_the_way(
    events_by_step: Mapping[int, int], step_us: int, events_apart: int, until_us: int
) -> list[int]:
    """Where a replay pauses to write a savepoint: ends of steps with enough events since the last.

    `events_by_step` has the events of each step of time, counted from the epoch.
    """
    stops, events = [], 0
    for step in sorted(events_by_step):
        events += events_by_step[step]
        end_us = (step + 1) * step_us
        if events >= events_apart and end_us < until_us:
            stops.append(end_us)
            events = 0
    return stops


@contextmanager
def replayed(
    spark: SparkSession, replay: Replay, until_us: int, emit_from_us: int | None
) -> Iterator[Outcome]:
    """The replay of all pinned rows from the base to `until_us`, kept while the body runs."""
    states = _base_states(spark, replay)
    from_us, events, rows_read = replay.base.until_us, replay.base.events, 0
    kept: list[Replayed] = []
    savepoint_id = ""
    try:
        for stop_us in [*_stops(spark, replay, until_us), until_us]:
            if kept:
                # Not from the plan that made them: over thirty stages it outgrows the driver.
                states = _read_back(spark, replay, savepoint_id)
            rows = pinned_rows(spark, replay, from_us, stop_us)
            stage = replay_fold(rows, replay.fold, replay.stream.buckets, stop_us, states)
            stage.folded.persist()
            kept.append(stage)
            folded = stage.folded.agg(F.coalesce(F.sum("rows_folded"), F.lit(0))).collect()[0][0]
            events, rows_read = events + folded, rows_read + folded
            savepoint_id = _ensure_savepoint(spark, replay, stage.states, stop_us, events)
            from_us = stop_us
        outputs = _emitted(kept, emit_from_us)
        yield Outcome(outputs, kept[-1].states, events, rows_read, savepoint_id)
    finally:
        for stage in kept:
            stage.folded.unpersist()


def _stops(spark: SparkSession, replay: Replay, until_us: int) -> list[int]:
    rules, from_us = replay.stream.savepoints, replay.base.until_us
    if rules.cadence is None:
        return []
    step_us = rules.cadence // MICROSECOND
    if from_us is not None and until_us <= (from_us // step_us + 1) * step_us:
        return []  # as in a daily backfill: nothing to count
    step = F.floor(_at(INSTANTS[replay.fold.time_us]) / step_us)
    counted = pinned_rows(spark, replay, from_us, until_us).groupBy(step).count().collect()
    return stops_on_the_way(dict(map(tuple, counted)), step_us, rules.events_apart, until_us)


def _read_back(spark: SparkSession, replay: Replay, savepoint_id: str) -> DataFrame:
    savepoint = savepoint_at(replay.lake, replay.stream.name, savepoint_id)
    if savepoint is None:
        raise LakeError(f"savepoint {savepoint_id} was deleted under the replay that wrote it")
    return savepoint_states(spark, replay.lake, savepoint)  # checked a moment ago


def _emitted(stages: Sequence[Replayed], from_us: int | None) -> DataFrame:
    outputs = stages[0].outputs
    for stage in stages[1:]:
        outputs = outputs.union(stage.outputs)
    return outputs if from_us is None else outputs.where(F.col("emitted_at_us") >= from_us)


def pinned_rows(
    spark: SparkSession, replay: Replay, from_us: int | None, until_us: int | None
) -> DataFrame:
    """The events of the replay's bronze from one instant on and before another."""
    pin = replay.pin
    return events_between(spark, pin.path, replay.fold, pin.ingested_at_us, from_us, until_us)


def events_between(
    spark: SparkSession,
    bronze: str,
    fold: KeyedFold,
    ingested_at_us: int,
    from_us: int | None,
    until_us: int | None,
) -> DataFrame:
    """Rows of bronze, all that were ingested by then, from one instant on and before another.

    On the fold's clock; None is no bound. Clock rows are left out.
    """
    time = INSTANTS[fold.time_us]
    rows = spark.read.format("delta").load(bronze)
    rows = rows.where((_at("ingested_at") <= ingested_at_us) & ~F.col("is_clock"))
    if from_us is not None:
        rows = rows.where(_at(time) >= from_us)
    if until_us is not None:
        rows = rows.where(_at(time) < until_us)
    if time == "event_time":  # for Delta: only these partitions
        if from_us is not None:
            rows = rows.where(F.col("event_date") >= _date(from_us))
        if until_us is not None:
            rows = rows.where(F.col("event_date") <= _date(until_us))
    return rows


def _at(name: str) -> Column:
    return F.unix_micros(name)


def _date(micros: int) -> Column:
    return F.to_date(F.timestamp_micros(F.lit(micros)))


def _base_states(spark: SparkSession, replay: Replay) -> DataFrame | None:
    if replay.base.savepoint is not None:
        states = read_savepoint(spark, replay.lake, replay.base.savepoint)
        return _mapped(replay, states) if replay.base.mapped else states
    initial = read_initial_state(spark, replay.lake, replay.stream.name, replay.fold)
    return None if initial is None else state_rows(initial)


def _mapped(replay: Replay, states: DataFrame) -> DataFrame:
    migrate = load_definition(replay.stream).migrate_state
    if migrate is None:
        raise SettingsError(
            f"spark_jobs/streams/{replay.stream.name}.py has no migrate_state any more, with which "
            "this reseed was begun: put it back"
        )
    return migrated_states(states, replay.fold, migrate)


def _ensure_savepoint(
    spark: SparkSession, replay: Replay, states: DataFrame, until_us: int, events: int
) -> str:
    """The id of a savepoint of just that: an equal one that is there already, or a new one."""
    wanted = (until_us, events, replay.lineage, replay.pin.table_id)
    for known in savepoints_of(replay.lake, replay.stream.name):
        if (known.until_us, known.events, known.code, known.bronze_id) != wanted:
            continue
        if _sound_rows(spark, replay.lake, replay.run_id, known) is not None:
            return known.savepoint_id
    return write_savepoint(replay.lake, states, replay.fold, until_us, manifest_of(replay, events))


def manifest_of(replay: Replay, events: int) -> dict[str, object]:
    """The columns of `ops/savepoints` that whoever writes one knows beforehand."""
    return {
        "origin": replay.origin,
        "run_id": replay.run_id,
        "events": events,
        "bronze_id": replay.pin.table_id,
        "bronze_version": replay.pin.version,
        "code": replay.lineage,
        "state_schema": replay.identity.state_schema,
    }


def interval_row(
    replay: Replay,
    outcome: Outcome,
    change: RangeChange,
    generation: int,
    start: datetime | None,
    until: datetime,
) -> dict[str, object]:
    """The row of `ops/intervals` for what a replay has replaced; None is the beginning."""
    base, pin = replay.base, replay.pin
    return {
        "run_id": replay.run_id,
        "stream": replay.stream.name,
        "kind": replay.origin,
        "start": start,
        "until": until,
        "recomputed_at": datetime.now(UTC),
        "generation": generation,
        "base_savepoint": base.savepoint.savepoint_id if base.savepoint else None,
        "base_until": None if base.until_us is None else instant_of(base.until_us),
        "bronze_id": pin.table_id,
        "bronze_version": pin.version,
        "bronze_ingested_at": instant_of(pin.ingested_at_us),
        "code": replay.lineage,
        "rows_read": outcome.rows_read,
        "rows_before": change.before,
        "rows_after": change.after,
        "rows_removed": change.removed,
        "rows_added": change.added,
        "savepoint_id": outcome.savepoint_id,
    }
