"""What a key has beside its state, values seen and named timers, through operations in a row.

Each operation hands it on by another way: checkpoint to savepoint, savepoint to replay, replay to
savepoint, savepoint to checkpoint. What is lost on one of them shows in a duplicate that is folded,
or a timer that does not fire, days later. The oracle folds all rows from the beginning, in plain Python.
"""

import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from include.coverage.rebuild import give_up_reseed
from include.fold.deduplicate import Deduplicate
from include.lake.generations import read_generations
from include.plans.reseed_plan import ReseedOptions
from include.savepoints.manifest import savepoints_of
from include.settings import SavepointRules
from include.stream_definition import load_definition
from include.streams.device_signals import Signal
from spark_jobs import reseed_stream
from spark_jobs.engines.checkpointed_states import read_states
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_rows import states_from_rows
from spark_jobs.live_savepoint import read_savepoint, savepoint_at
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.bronze import Happened, StampedRow, stamp
from tests.changed_stream import MODULE, NAME, RECORDS, STREAM, Deployed, deployed_in
from tests.engines.lake_runs import drained, table_of
from tests.fold.duplicates import seen_in
from tests.fold.timer_machine import timers_in
from tests.late_lakes import (
    DAY_US,
    DAYS_US,
    HOUR_US,
    START_US,
    at,
    between,
    late_among,
    rows_of,
    until_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.full]

WITHIN_US, IDLE_US = 30 * HOUR_US, 13 * HOUR_US
BESIDE: Any = replace(
    STREAM,
    deduplicate=Deduplicate(by="value", within=timedelta(hours=30)),
    savepoints=SavepointRules(events_apart=1),
)
FUNCTION = """
def fold(key, events, state):
    if state.timer is not None:
        yield Row(key, state.timer, amount(state.get if state.exists else None))
        if state.timer == "daily":
            state.remove()
        return
    for _ in events:
        state.update(counted(state.get if state.exists else None))
        state.setTimer("idle", timestampUs=state.clock_us + 13 * 3_600_000_000)
        if "daily" not in state.timers:
            state.setTimer("daily", timestampUs=state.clock_us + 24 * 3_600_000_000)
        yield Row(key, "signal", amount(state.get))

FOLD = flat_map_groups_with_state(
    fold, key="device_id", event=Signal, state=Total, output=Row, output_mode="append",
    timeout="EventTimeTimeout", timers=("idle", "daily"))
"""
OLD = f"""{RECORDS}
class Total(NamedTuple):
    signals: int

def counted(old):
    return Total((old.signals if old else 0) + 1)

def amount(total):
    return total.signals if total else 0
{FUNCTION}"""
NEW = f"""{RECORDS}
class Total(NamedTuple):
    signals: int
    since: int | None

def counted(old):
    old = old or Total(0, 0)
    return Total(old.signals + 1, (old.since or 0) + 1)

def amount(total):
    return total.signals * 1000 + (total.since or 0) if total else 0

def migrate_state(old):
    return Total(old["signals"], None)
{FUNCTION}"""


def commits(seed: int) -> list[list[StampedRow]]:
    """Eleven of eight hours each, few values; from the fifth to the ninth some rows are a day late.
    Device 8 falls silent twice: its timers fire whatever is done meanwhile."""
    rng = random.Random(seed)
    made = []
    for number in range(11):
        start_us = START_US + number * 8 * HOUR_US
        times = [start_us + rng.randrange(8 * HOUR_US) for _ in range(12)]
        if 4 <= number < 9:
            times += [time_us - DAY_US for time_us in rng.sample(times, 3)]
        rows = [(rng.randrange(3), time_us, rng.randrange(9)) for time_us in times]
        if number in (0, 5):
            rows += [(8, start_us + HOUR_US, 1), (8, start_us + 2 * HOUR_US, 1)]
        made.append([Happened(Signal(*row), row[1]) for row in rows])
    return stamp(made)


@dataclass
class OfKey:
    """For the oracle."""

    signals: int = 0
    since: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)


@dataclass
class Truth:
    """What all of `rows` before an instant come to; from `mapped_us` on by the new code."""

    until_us: int
    mapped_us: int | None = None
    initial: dict[int, int] = field(default_factory=dict)
    table: Counter[Any] = field(default_factory=Counter)
    keys: dict[int, OfKey] = field(default_factory=lambda: defaultdict(OfKey))

    def of(self, rows: Sequence[StampedRow]) -> "Truth":
        by_key = defaultdict(list)
        for row in rows:
            by_key[row.event.device_id].append((row.time_us, row.event.value))
        for key in {*by_key, *self.initial}:
            self.keys[key].signals = self.initial.get(key, 0)
            self._fold(key, self.keys[key], sorted(by_key[key]))
        return self

    def _fold(self, key: int, known: OfKey, waiting: list[tuple[int, int]]) -> None:
        while due := min(
            [(us, 0, "") for us, _ in waiting[:1]]
            + [(us, 1, name) for name, us in known.timers.items()],
            default=None,
        ):
            us, _, name = due
            if us >= self.until_us:
                break
            is_new = self.mapped_us is not None and us >= self.mapped_us
            if name:
                del known.timers[name]
            elif not self._counts(known, *waiting.pop(0), is_new):
                continue
            amount = known.signals * 1000 + known.since if is_new else known.signals
            self.table[(key, name or "signal", amount), us] += 1
            if name == "daily":
                known.signals = known.since = 0
        known.seen = [(v, us) for v, us in known.seen if self.until_us - us <= WITHIN_US]

    def _counts(self, known: OfKey, us: int, value: int, is_new: bool) -> bool:
        if any(v == value and us - before <= WITHIN_US for v, before in known.seen):
            return False
        known.seen.append((value, us))
        known.signals += 1
        known.since += is_new
        known.timers["idle"] = us + IDLE_US
        known.timers.setdefault("daily", us + DAY_US)
        return True

    @property
    def seen(self) -> dict[int, Any]:
        return {key: known.seen for key, known in self.keys.items() if known.seen}

    @property
    def timers(self) -> dict[int, Any]:
        return {key: known.timers for key, known in self.keys.items() if known.timers}


class KilledError(Exception):
    pass


def killed(*_: Any) -> None:
    raise KilledError


@dataclass
class Run:
    """A stream of a lake, and what is done to it."""

    spark: Any
    lake: Any
    files: Deployed
    source: str

    def __post_init__(self) -> None:
        self.deploy(self.source)

    def deploy(self, source: str) -> None:
        self.files.deploy(source)
        self.fold = load_definition(BESIDE).fold

    @property
    def generation(self) -> int:
        return int(read_generations(self.lake, NAME).current["generation"])

    def drain(self, stamped: Sequence[Sequence[StampedRow]], runs: int = 1) -> None:
        drained(self.spark, self.lake, BESIDE, self.fold, stamped, runs)

    def reseed(self, **options: Any) -> None:
        reseed(SparkEngine(self.spark), self.lake, BESIDE, ReseedOptions(**options))

    def check_table(self, truth: Truth) -> None:
        assert table_of(self.lake, BESIDE, self.fold) == truth.table

    def check_checkpoint(self, truth: Truth) -> None:
        checkpoint = self.lake.checkpoint(NAME, self.generation)
        self._check_beside(read_states(self.spark, checkpoint, self.fold), truth)

    def check_seed(self, truth: Truth) -> None:
        """The savepoint that the newest reseed has ended with."""
        row = read_generations(self.lake, NAME).current
        savepoint = savepoint_at(self.lake, NAME, row["seed_savepoint"])
        self._check_beside(read_savepoint(SparkEngine(self.spark), self.lake, savepoint), truth)

    def _check_beside(self, rows: Any, truth: Truth) -> None:
        states = list(states_from_rows(self.fold, rows.toArrow()))
        assert seen_in(states) == truth.seen
        assert timers_in(states) == truth.timers


@pytest.fixture
def files(tmp_path, monkeypatch):
    yield deployed_in(tmp_path, monkeypatch, BESIDE)
    sys.modules.pop(MODULE, None)


def truth_of(stamped, before: int, until: int = 0, **more: Any) -> Truth:
    """A reseed saw all rows of the commits `before`, and live those of the ones `until` that are in time."""
    first, rest = stamped[:before], stamped[before:until]
    late = late_among(BESIDE, rows_of(rest))
    rows = rows_of(first) + [row for row in rows_of(rest) if row not in late]
    return Truth(until_of(BESIDE, [*first, *rest]), **more).of(rows)


def kill_reseed(run: Run, monkeypatch: pytest.MonkeyPatch, step: str, **options: Any) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, step, killed)
        with pytest.raises(KilledError):
            run.reseed(**options)


def test_they_come_through_operations_in_a_row(spark, lake, files, monkeypatch):
    stamped = commits(seed=3)
    run = Run(spark, lake, files, OLD)
    run.drain(stamped[:4], runs=2)
    assert savepoints_of(lake, NAME)
    run.drain(stamped[4:5])  # with late rows, of which live knows nothing

    # A reseed that is given up: live goes on with what it has.
    kill_reseed(run, monkeypatch, "replayed", buckets=3)
    give_up_reseed(lake, BESIDE)
    run.drain(stamped[5:6])
    live, missing = truth_of(stamped, before=4, until=6), truth_of(stamped, before=6)
    run.check_table(live)
    run.check_checkpoint(live)
    assert (live.seen, live.timers) != (missing.seen, missing.timers)

    # Rescale, which is killed and overtaken by another, from a live savepoint.
    kill_reseed(run, monkeypatch, "_switch", buckets=3)
    run.reseed(buckets=9, partitions=3)
    assert run.generation == 4
    run.check_table(missing)
    run.check_seed(missing)
    run.drain(stamped[6:7])
    run.check_table(truth_of(stamped, before=6, until=7))
    run.check_checkpoint(truth_of(stamped, before=6, until=7))

    # A backfill of a closed day, late rows included, from what a reseed or live has written.
    run.drain(stamped[7:8])
    run.drain([stamped[8]])
    live, right = truth_of(stamped, before=6, until=9), truth_of(stamped, before=9)
    assert live.table != right.table
    recompute(SparkEngine(spark), lake, BESIDE, at(DAYS_US[1]), at(DAYS_US[2]))
    table = table_of(lake, BESIDE, run.fold)
    assert between(table, *DAYS_US[1:3]) == between(right.table, *DAYS_US[1:3])
    assert between(table, 0, DAYS_US[1]) == between(live.table, 0, DAYS_US[1])
    assert between(table, DAYS_US[2], DAYS_US[5]) == between(live.table, DAYS_US[2], DAYS_US[5])

    # Promote behind it, which may begin with what the backfill has left.
    run.reseed()
    run.check_table(right)
    run.check_seed(right)

    # Another record version, killed while it replays and finished by the next run.
    run.deploy(NEW)
    kill_reseed(run, monkeypatch, "replayed", from_state=True)
    run.drain(stamped[9:10])
    row = read_generations(lake, NAME).current
    assert (row["reseed"], row["base_savepoint"] is not None) == ("migrate", True)
    mapped_us = savepoint_at(lake, NAME, row["base_savepoint"]).until_us
    run.check_table(truth_of(stamped, before=9, until=10, mapped_us=mapped_us))
    run.check_checkpoint(truth_of(stamped, before=9, until=10, mapped_us=mapped_us))

    # And rescaled from there, once more to go on from.
    run.reseed(buckets=4)
    before = truth_of(stamped, before=10, mapped_us=mapped_us)
    run.check_table(before)
    run.check_seed(before)
    run.drain(stamped[10:])
    run.check_table(truth_of(stamped, before=10, until=11, mapped_us=mapped_us))
    run.check_checkpoint(truth_of(stamped, before=10, until=11, mapped_us=mapped_us))


def test_they_begin_empty_beside_an_initial_state_also_from_the_beginning(spark, lake, files):
    stamped, initial = commits(seed=5), {1: 40, 2: 50, 9: 60}
    file = Path(lake.initial_state_file(NAME))
    file.parent.mkdir(parents=True)
    keys = [{"key": key, "state": {"signals": n}} for key, n in initial.items()]
    file.write_text(json.dumps({"as_of": at(START_US).isoformat(), "keys": keys}))
    run = Run(spark, lake, files, OLD)
    run.drain(stamped[:6], runs=2)
    run.reseed(recompute=True)
    run.check_table(truth_of(stamped, before=6, initial=initial))
    run.check_seed(truth_of(stamped, before=6, initial=initial))
    run.drain(stamped[6:8])
    run.reseed(buckets=7)
    run.check_table(truth_of(stamped, before=8, initial=initial))
    run.drain(stamped[8:9])
    run.check_table(truth_of(stamped, before=8, until=9, initial=initial))
    run.check_checkpoint(truth_of(stamped, before=8, until=9, initial=initial))
