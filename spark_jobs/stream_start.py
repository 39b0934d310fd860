"""How a stream's first run begins: with nothing, or with the initial state that a user gives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from include.checkpoint.offsets import newest_committed, newest_planned
from include.coverage.entries import Entry
from include.coverage.marks import mark_of
from include.fold.definition import KeyedFold
from include.fold.instants import instant_of, micros_of
from include.lake.generations import GenerationRow, is_reseeded
from include.lake.paths import Lake, LakeError
from include.landing.initial_state import read_fingerprint
from include.plans.open_stream import OpenStream
from include.savepoints.bronze_pin import has_commit, pin_bronze
from spark_jobs.engines.data_checks import DataChecks
from spark_jobs.engines.engine import Engine, ProductTable, Rows, Seed
from spark_jobs.savepoints import savepoint_at, states_of_base


@dataclass(frozen=True)
class Start:
    """What a run of a stream stands on beside its settings."""

    seed: Seed | None = None
    pins: dict[str, Any] = field(default_factory=dict)  # columns of ops/generations
    kept_at_start: int = 0
    pending_at_start: int = 0
    first_version: int | None = None  # of bronze; None: all that there is


def plan_start(engine: Engine, opened: OpenStream) -> Start:
    """The start of a stream's next run; SettingsError when the initial state is no good."""
    lake, fold, row = opened.lake, opened.fold, opened.row
    if row is not None and is_reseeded(row):
        return _after_reseed(engine, lake, row, fold)
    if newest_committed(lake, opened.checkpoint) is not None:
        return _resume(opened)
    initial = engine.initial_states(lake, opened.name, fold)
    if initial is None:
        return Start(pins={"initial_state": None, "initial_as_of": None})
    pins = {
        "initial_state": initial.fingerprint,
        "initial_as_of": instant_of(initial.as_of_us),
    }
    seed = Seed(initial.as_of_us, initial.states)
    return Start(seed, pins, _kept_without_timeout(engine, initial.states, fold))


def _kept_without_timeout(engine: Engine, states: Rows, fold: KeyedFold) -> int:
    return engine.count_without_timeout(states) if fold.times_out and fold.ttl is None else 0


def _resume(opened: OpenStream) -> Start:
    """The checkpoint has the initial state; it must still be the one that was pinned."""
    pinned = opened.generations.pinned(opened.generation)
    as_of = pinned["initial_as_of"]
    seed = None if as_of is None else Seed(micros_of(as_of), None)
    initial = read_fingerprint(opened.lake, opened.name, pinned["initial_state"])
    return Start(seed, {"initial_state": initial})


def _after_reseed(engine: Engine, lake: Lake, row: GenerationRow, fold: KeyedFold) -> Start:
    """The savepoint of the reseed, and the events that waited then; or a checkpoint with both."""
    stream, as_of_us = row["stream"], micros_of(row["until"])
    pins = {"initial_state": read_fingerprint(lake, stream, row["initial_state"])}
    after = row["bronze_version"] + 1
    if newest_committed(lake, lake.checkpoint(stream, row["generation"])) is not None:
        return Start(Seed(as_of_us, None), pins, first_version=after)
    ingested_us = micros_of(row["bronze_ingested_at"])
    if not has_commit(pin_bronze(lake, row["source"]), ingested_us):
        # What came in its place has lower versions than the run would begin with: it would not be read.
        raise LakeError(
            f"{lake.bronze(row['source'])} does not have what the reseed to generation "
            f"{row['generation']} of {stream} has read of it: it is an older copy. Put the newer one "
            "back; or, begin with this one",
            code="of_other_times",
            subject=f"bronze/{row['source']}",
            command=f"./stateful reseed {stream} --apply",
        )
    savepoint = savepoint_at(lake, stream, row["seed_savepoint"])
    if savepoint is None:
        raise LakeError(
            f"savepoint {row['seed_savepoint']} is gone, with which generation "
            f"{row['generation']} of {stream} begins",
            code="unreadable_savepoint",
            subject=stream,
            command=f"./stateful reseed {stream} --apply",
        )
    states = states_of_base(engine, lake, savepoint, f"generation {row['generation']}")
    kept = _kept_without_timeout(engine, states, fold)
    waiting = engine.events(lake, row["source"], fold, ingested_us, from_us=as_of_us, until_us=None)
    return Start(Seed(as_of_us, states, waiting), pins, kept, row["seed_pending"], after)


def write_initial_rows(
    opened: OpenStream,
    table: ProductTable,
    start: Start,
    covered: Callable[[], Entry],
    checks: DataChecks,
) -> None:
    """An update table shows all states from the beginning: also those without an event yet.

    Before the first batch is planned the whole table is replaced: an earlier attempt may have
    had another initial state. From then on it is pinned, and the rows are there.
    """
    planned = newest_planned(opened.lake, opened.checkpoint)
    if opened.fold.output_mode != "update" or start.seed is None or planned is not None:
        return
    if start.first_version is not None:
        return  # a reseed has written them
    states = start.seed.states
    if states is not None:
        of_states = partial(table.judge_states, states)
        checks.admit(of_states, "the initial state", opened.generation)
        table.replace_all(states, mark_of(covered()))
