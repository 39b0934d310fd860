"""Replay bronze from a starting savepoint, and replace the table's rows: the core of restate and rebuild."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from include.catalogue import FINDINGS, dead_letters_finding
from include.fold.admission import MICROSECOND, instant_of
from include.fold.bucket import INSTANTS
from include.ingest.bronze_tables import add_fields
from include.ingest.ingest_log import refuse_changed_bronze
from include.job import RunRecord
from include.lake.delta_log import open_table
from include.lake.multiset import has_weights
from include.lake.ops import record_findings
from include.lake.paths import Lake
from include.stream.bronze import ROWS, BronzeFiles, count_before
from include.stream.manifest import (
    Savepoint,
    SavepointError,
    holds_rows_of,
    keep_savepoints,
    refuse_damaged,
    savepoints_of,
)
from include.stream.restate_plan import Replay
from spark_jobs.engines.engine import Rows, Stage
from spark_jobs.engines.live_batch import DataChecks
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.write_savepoint import write_savepoint

P = TypeVar("P", bound=Replay)


def plan_with_sound_start(lake: Lake, run_id: str, plan: Callable[[], P]) -> P:
    """Return the plan, made again for as long as its starting savepoint proves damaged."""
    while True:
        planned = plan()
        savepoint = planned.starting.savepoint
        if savepoint is None or _is_sound(lake, run_id, savepoint):
            return planned


def _is_sound(lake: Lake, run_id: str, savepoint: Savepoint) -> bool:
    """True if a savepoint's files are as written; else it is deleted, with a finding."""
    try:
        refuse_damaged(lake, savepoint)
    except SavepointError as error:
        known = savepoints_of(lake, savepoint.stream)
        keep_savepoints(lake, savepoint.stream, [each for each in known if each != savepoint])
        said = f"{error}. It is deleted, and another one takes its place"
        found = FINDINGS["savepoint_damaged"].found(savepoint.stream, said)
        record_findings(lake, run_id, savepoint.stream, findings=[found])
        return False
    return True


def stops_on_the_way(
    events_by_step: Mapping[int, int], step_us: int, events_apart: int, until_us: int
) -> list[int]:
    """The ends of steps of time since 1970 at which a replay writes a savepoint."""
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
    engine: SparkEngine, replay: Replay, run_id: str
) -> Iterator[tuple[list[Stage], Savepoint]]:
    """The stages of the replay, cached while the body runs, and the savepoint at its end."""
    add_fields(replay.lake, replay.opened.source)
    states = _starting_states(engine, replay)
    from_us, events = replay.starting.until_us, replay.starting.events
    retained: list[Stage] = []
    savepoint: Savepoint | None = None
    try:
        for stop_us in [*_stops(replay), replay.until_us]:
            if savepoint is not None:
                # Not from the plan that made them: over thirty stages it outgrows the driver.
                states = engine.savepoint_states(replay.lake, savepoint)  # checked a moment ago
            bounds = Bounds(replay.bronze.ingested_at_us, from_us, stop_us)
            rows = engine.events(replay.lake, replay.opened.source, replay.opened.fold, bounds)
            stage = engine.fold(rows, replay.opened.fold, replay.row["buckets"], stop_us, states)
            retained.append(stage)
            # Others' rows since the first look must not count: a savepoint with them would look valid.
            refuse_changed_bronze(replay.lake, replay.opened.source, f"a {replay.kind}")
            events = _events_before(replay, stop_us, events + stage.events)
            savepoint = _ensure_savepoint(
                engine, replay, run_id, stage.states, until_us=stop_us, events=events
            )
            from_us = stop_us
        assert savepoint is not None  # the last stop is the end
        yield retained, savepoint
    finally:
        for stage in retained:
            engine.release(stage)


def _events_before(replay: Replay, until_us: int, folded: int) -> int:
    """The number of bronze's rows before an instant: those that are taken back count, too."""
    if not has_weights(open_table(replay.bronze.path)):
        return folded
    identity = replay.opened.identity
    (events,) = count_before(replay.bronze, identity.time_column, identity.since_us, [until_us])
    return events


def _stops(replay: Replay) -> list[int]:
    rules, from_us = replay.opened.declared.savepoints, replay.starting.until_us
    if rules.cadence is None:
        return []
    step_us = rules.cadence // MICROSECOND
    if from_us is not None and replay.until_us <= (from_us // step_us + 1) * step_us:
        return []  # as in a daily backfill
    counted = _events_by_step(replay, step_us, from_us)
    return stops_on_the_way(counted, step_us, rules.events_apart, until_us=replay.until_us)


def _events_by_step(replay: Replay, step_us: int, from_us: int | None) -> Counter[int]:
    """The approximate number of events in each step of time, by where each file of bronze ends."""
    files = BronzeFiles(open_table(replay.lake.bronze(replay.opened.source)))
    _, last_us = files.span(INSTANTS[replay.opened.fold.time_us])
    events: Counter[int] = Counter()
    for last, rows in zip(last_us.to_pylist(), files.numbers(ROWS).to_pylist(), strict=True):
        if None not in (last, rows) and (from_us is None or last >= from_us):
            events[last // step_us] += rows
    return events


def _starting_states(engine: SparkEngine, replay: Replay) -> Rows | None:
    starting, opened = replay.starting, replay.opened
    if starting.savepoint is None:
        initial = engine.initial_states(replay.lake, opened.name, opened.fold)
        return None if initial is None else initial.states
    states = engine.savepoint_states(replay.lake, starting.savepoint)  # checked when it was planned
    migrate = opened.definition.migrate_state if starting.mapped else None
    is_same = starting.savepoint.state_schema == opened.identity.state_schema  # of --forward
    return states if migrate is None or is_same else engine.migrated(states, opened.fold, migrate)


def _ensure_savepoint(
    engine: SparkEngine, replay: Replay, run_id: str, states: Rows, until_us: int, events: int
) -> Savepoint:
    """Return the savepoint of these states: an equal one that is there already, or a new one."""
    wanted = (until_us, events, replay.code)
    for known in savepoints_of(replay.lake, replay.opened.name):
        is_it = (known.until_us, known.events, known.code) == wanted
        if is_it and holds_rows_of(known, replay.bronze) and _is_sound(replay.lake, run_id, known):
            return known
    return write_savepoint(
        engine,
        replay.lake,
        states,
        replay.opened.fold,
        until_us,
        kind=replay.kind,
        run_id=run_id,
        events=events,
        bronze_id=replay.bronze.table_id,
        bronze_ingested_at_us=replay.bronze.ingested_at_us,
        code=replay.code,
        state_schema=replay.opened.identity.state_schema,
    )


def commit_replay(
    engine: SparkEngine, replay: Replay, checks: DataChecks, record: RunRecord, what: str
) -> None:
    """Replay `what`, replace dead letters, then the table's rows, and fill in the run's `record`."""
    opened, start_us, is_rebuilt = replay.opened, replay.starting.until_us, replay.kind == "rebuild"
    table = engine.product_table(replay.lake, opened.name, opened.definition, is_rebuilt=is_rebuilt)
    checks.refuse_wrong(table)  # before anything is written
    with replayed(engine, replay, record["run_id"]) as (stages, savepoint):
        outputs = [stage.outputs for stage in stages]
        rows = engine.table_rows(opened.fold, outputs, stages[-1].states)
        judge = partial(table.judge, rows, from_us=replay.from_us)
        checks.admit(judge, what)
        dead_letters = [stage.dead_letters for stage in stages if stage.dead_letters is not None]
        record |= _replace_dead_letters(engine, replay, record["run_id"], dead_letters)
        record["rows_before"], record["rows_out"] = table.replace(
            rows,
            replay.record(record["run_id"], savepoint).as_json(),
            replay.from_us,
            until_us=replay.end_us,
            is_recreated=opened.mismatch is not None,
        )
    read = sum(stage.events for stage in stages)
    duplicate = sum(stage.rows_duplicate for stage in stages)
    record |= {
        "start": None if replay.from_us is None else instant_of(replay.from_us),
        "until": instant_of(replay.until_us),
        "generation": replay.row["generation"],
        "base_until": None if start_us is None else instant_of(start_us),
        "bronze_version": replay.bronze.version,
        "rows_in": read,
        "rows_folded": read - duplicate,
        "rows_duplicate": duplicate,
        "savepoint_id": savepoint.savepoint_id,
    }


def _replace_dead_letters(
    engine: SparkEngine, replay: Replay, run_id: str, dead_letters: Sequence[Rows]
) -> dict[str, int]:
    """Replace the dead letters before the table's commit, whose record counts on them."""
    stream, from_us = replay.opened.name, replay.dead_letters_from_us
    table = engine.dead_letters_table(replay.lake, stream)
    found = table.summary(dead_letters, from_us)
    if found or replay.lake.is_delta_table(table.path):
        table.replace_range(dead_letters, from_us, replay.end_us)
    if found is None:
        return {"rows_dead_lettered": 0, "timeouts_dead_lettered": 0}
    events, timeouts, first_us, last_us = found
    span = instant_of(first_us), instant_of(last_us)
    finding = dead_letters_finding(stream, events, timeouts, *span)
    record_findings(replay.lake, run_id, stream, findings=[finding])
    return {"rows_dead_lettered": events, "timeouts_dead_lettered": timeouts}
