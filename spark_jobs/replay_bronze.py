"""Replay pinned bronze from a base, with savepoints on the way: what recompute and reseed share."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from include.coverage.record import Entry
from include.fold.admission import MICROSECOND, instant_of
from include.fold.bucket import INSTANTS
from include.fold.definition import KeyedFold
from include.lake.delta_log import commit_hash, table_to_read
from include.lake.findings import Finding, dead_letters_findings, record_findings
from include.lake.paths import Lake
from include.lake.stream_result import RangeChange
from include.landing.bronze_tables import add_fields
from include.landing.ingest_log import refuse_changed_bronze
from include.plans.plan_recompute import RecomputePlan
from include.plans.reseed_plan import ReseedPlan
from include.savepoints.bronze_pin import BronzeFiles, BronzePin
from include.savepoints.choose_base import Base, holds_rows_of, is_of
from include.savepoints.manifest import (
    Savepoint,
    SavepointError,
    StreamIdentity,
    keep_savepoints,
    refuse_damaged,
    savepoints_of,
)
from include.settings import Stream
from include.stream_definition import load_definition
from spark_jobs.engines.engine import Engine, Rows, Stage
from spark_jobs.engines.packing import Bounds
from spark_jobs.live_savepoint import write_savepoint

P = TypeVar("P", RecomputePlan, ReseedPlan)


def plan_with_sound_base(lake: Lake, run_id: str, plan: Callable[[], P]) -> P:
    """The plan, made again for as long as its savepoint proves damaged: others serve as well."""
    while True:
        planned = plan()
        base = planned.base.savepoint
        if base is None or _is_sound(lake, run_id, base):
            return planned


def _is_sound(lake: Lake, run_id: str, savepoint: Savepoint) -> bool:
    """Whether the files of a savepoint are those that were written. A damaged one is deleted, with a finding."""
    try:
        refuse_damaged(lake, savepoint)
    except SavepointError as error:
        known = savepoints_of(lake, savepoint.stream)
        keep_savepoints(lake, savepoint.stream, [each for each in known if each != savepoint])
        found = Finding(
            finding="savepoint_damaged",
            severity="warning",
            detail=f"{error}. It is deleted, and another one takes its place",
            action="nothing, if you do not know of it; else look after the lake's storage",
        )
        record_findings(lake, run_id, savepoint.stream, findings=[found])
        return False
    return True


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
    origin: Literal["recompute", "reseed"]

    @property
    def lineage(self) -> str:
        """What the states come of; see `include/savepoints/manifest.py`."""
        return self.base.lineage(self.identity.code)


@dataclass
class Outcome:
    """What a replay came to."""

    outputs: list[Rows]  # of each stage
    dead_letters: list[Rows]  # of each stage; of none when the fold keeps none
    states: Rows  # at `until`
    events: int  # bronze rows that those stand for
    rows_read: int
    rows_duplicate: int  # of those
    savepoint: Savepoint


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
def replayed(engine: Engine, replay: Replay, until_us: int) -> Iterator[Outcome]:
    """The replay of all pinned rows from the base to `until_us`, kept while the body runs."""
    add_fields(replay.lake, replay.stream.source)
    states = _base_states(engine, replay)
    from_us, events, rows_read = replay.base.until_us, replay.base.events, 0
    kept: list[Stage] = []
    savepoint: Savepoint | None = None
    try:
        for stop_us in [*_stops(replay, until_us), until_us]:
            if savepoint is not None:
                # Not from the plan that made them: over thirty stages it outgrows the driver.
                states = engine.savepoint_states(replay.lake, savepoint)  # checked a moment ago
            bounds = Bounds(replay.pin.ingested_at_us, from_us, stop_us)
            rows = engine.events(replay.lake, replay.stream.source, replay.fold, bounds)
            stage = engine.fold(rows, replay.fold, replay.stream.buckets, stop_us, states)
            kept.append(stage)
            # Not what others write from the first look on: a savepoint of it would look clean.
            refuse_changed_bronze(replay.lake, replay.stream.source, f"a {replay.origin}")
            events, rows_read = events + stage.events, rows_read + stage.events
            savepoint = _ensure_savepoint(engine, replay, stage.states, stop_us, events)
            from_us = stop_us
        outputs = [stage.outputs for stage in kept]
        dead_letters = [stage.dead_letters for stage in kept if stage.dead_letters is not None]
        duplicate = sum(stage.rows_duplicate for stage in kept)
        assert savepoint is not None  # the last stop is `until_us`
        yield Outcome(
            outputs,
            dead_letters,
            kept[-1].states,
            events=events,
            rows_read=rows_read,
            rows_duplicate=duplicate,
            savepoint=savepoint,
        )
    finally:
        for stage in kept:
            engine.release(stage)


def _stops(replay: Replay, until_us: int) -> list[int]:
    rules, from_us = replay.stream.savepoints, replay.base.until_us
    if rules.cadence is None:
        return []
    step_us = rules.cadence // MICROSECOND
    if from_us is not None and until_us <= (from_us // step_us + 1) * step_us:
        return []  # as in a daily backfill: nothing to count
    counted = _events_by_step(replay, step_us, from_us)
    return stops_on_the_way(counted, step_us, rules.events_apart, until_us=until_us)


def _events_by_step(replay: Replay, step_us: int, from_us: int | None) -> Counter[int]:
    """The events of each step of time, about: by the log of bronze, where each file ends."""
    files = BronzeFiles(table_to_read(replay.lake.bronze(replay.stream.source)))
    _, last_us = files.span(INSTANTS[replay.fold.time_us])
    events: Counter[int] = Counter()
    for last, rows in zip(last_us.to_pylist(), files.rows().to_pylist(), strict=True):
        if None not in (last, rows) and (from_us is None or last >= from_us):
            events[last // step_us] += rows
    return events


def _base_states(engine: Engine, replay: Replay) -> Rows | None:
    savepoint = replay.base.savepoint
    if savepoint is not None:
        states = engine.savepoint_states(replay.lake, savepoint)  # checked when it was planned
        return _mapped(engine, replay, states) if replay.base.mapped else states
    initial = engine.initial_states(replay.lake, replay.stream.name, replay.fold)
    return None if initial is None else initial.states


def _mapped(engine: Engine, replay: Replay, states: Rows) -> Rows:
    migrate = load_definition(replay.stream).migrate_state
    assert migrate is not None  # or there would be no plan
    return engine.migrated(states, replay.fold, migrate)


def _ensure_savepoint(
    engine: Engine, replay: Replay, states: Rows, until_us: int, events: int
) -> Savepoint:
    """A savepoint of just that: an equal one that is there already, or a new one."""
    wanted = (until_us, events, replay.lineage)
    for known in savepoints_of(replay.lake, replay.stream.name):
        if (known.until_us, known.events, known.code) != wanted:
            continue
        if not (is_of(known, replay.pin) and holds_rows_of(known, replay.pin)):
            continue
        if _is_sound(replay.lake, replay.run_id, known):
            return known
    manifest = {
        "origin": replay.origin,
        "generation": None,
        "run_id": replay.run_id,
        "events": events,
        "bronze_id": replay.pin.table_id,
        "bronze_version": replay.pin.version,
        "bronze_ingested_at_us": replay.pin.ingested_at_us,
        "code": replay.lineage,
        "state_schema": replay.identity.state_schema,
    }
    return write_savepoint(engine, replay.lake, states, replay.fold, until_us, manifest)


def coverage_of(
    replay: Replay, generation: int, from_us: int | None, until_us: int, delay_us: int
) -> Entry:
    """The record's entry for the rows of a replay; `from_us` None is the beginning."""
    base, pin = replay.base, replay.pin
    return Entry(
        kind=replay.origin,
        from_us=from_us,
        until_us=until_us,
        generation=generation,
        run_id=replay.run_id,
        delay_us=delay_us,
        codes=(replay.lineage,),
        bronze_id=pin.table_id,
        bronze_version=pin.version,
        bronze_ingested_at_us=pin.ingested_at_us,
        read_version=pin.version,
        read_commit=commit_hash(replay.lake, pin.path, pin.version),
        mapped_from=base.savepoint.code if base.mapped and base.savepoint else None,
    )


def replaced_row(
    replay: Replay,
    outcome: Outcome,
    change: RangeChange,
    generation: int,
    start: datetime | None,
    until: datetime,
) -> dict[str, object]:
    """What `ops/runs` has of what a replay has replaced; None is the beginning."""
    base_us = replay.base.until_us
    return {
        "start": start,
        "until": until,
        "generation": generation,
        "base_until": None if base_us is None else instant_of(base_us),
        "bronze_version": replay.pin.version,
        "rows_in": outcome.rows_read,
        "rows_out": change.after,
        "rows_before": change.before,
        "rows_removed": change.removed,
        "rows_added": change.added,
        "savepoint_id": outcome.savepoint.savepoint_id,
    }


def replace_dead_letters(
    engine: Engine,
    replay: Replay,
    dead_letters: Sequence[Rows],
    from_us: int | None,
    until_us: int | None,
) -> dict[str, int]:
    """Make these the dead letters of the interval, and note what they are in `ops/findings`.

    Before the table is committed, whose record then counts on them; `put_back_dead_letters` undoes what a kill
    in between leaves.
    Returns the counts for the run's record.
    """
    stream = replay.stream.name
    table = engine.dead_letters_table(replay.lake, stream)
    found = table.summary(dead_letters, from_us)
    if found or replay.lake.is_delta_table(table.path):
        table.replace_range(dead_letters, from_us, until_us)
    if found is None:
        return {"rows_dead_lettered": 0, "timeouts_dead_lettered": 0}
    between = instant_of(found.first_us), instant_of(found.last_us)
    findings = dead_letters_findings(stream, found.events, found.timeouts, between, found.by_key)
    record_findings(replay.lake, replay.run_id, stream, findings=findings)
    return {"rows_dead_lettered": found.events, "timeouts_dead_lettered": found.timeouts}
