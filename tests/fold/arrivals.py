"""The arrival of events: Hypothesis draws it, and the local engine folds it.

Few keys and instants, so that equal keys, equal times and whole equal rows are common, and
that timeouts meet events, watermarks and each other exactly, and by one microsecond.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from hypothesis import strategies as st

from include.fold.admission import NEVER_US
from include.fold.definition import DeadLetter, KeyedFold
from include.fold.states import NO_STATE_US, KeyState
from include.fold.testing.cases import key_of_row
from tests.bronze import ClockAt, Happened, StampedRow, rows_for, stamp
from tests.fold import oracle
from tests.fold.local import LocalFold
from tests.fold.oracle import Known, Result, projected

DELAY_US = 5_000
# Some time after 1970, where Spark's watermark begins.
FIRST_US, LAST_US = 100_000, 140_000
MILLISECONDS = st.integers(FIRST_US // 1_000, LAST_US // 1_000).map(lambda ms: ms * 1_000)
FIVE_MILLISECONDS = st.sampled_from(range(FIRST_US, LAST_US, DELAY_US))
NEARLY = st.sampled_from([-1, 0, 0, 0, 1])
TIMES = st.integers(FIRST_US, LAST_US) | st.builds(
    int.__add__, MILLISECONDS | FIVE_MILLISECONDS, NEARLY
)
# How long after it happened an event arrives: beyond the delay it may be late.
TRAVELS = st.sampled_from([0, 0, 1_000, 4_000, 4_999, 5_000, 5_001, 9_000, 25_000])
KEYS = st.sampled_from("aaaabbcde")  # skewed


class Arrivals(NamedTuple):
    """Rows of bronze in their commits, and which commits a run's batch joins."""

    commits: list[list[StampedRow]]
    batch_ends: frozenset[int]  # numbers of commits, from 1
    buckets: int

    def batches(self) -> Iterable[list[StampedRow]]:
        batch: list[StampedRow] = []
        for number, commit in enumerate(self.commits, 1):
            batch.extend(commit)
            if number in self.batch_ends or number == len(self.commits):
                yield batch
                batch = []

    def rows(self) -> list[StampedRow]:
        return [row for commit in self.commits for row in commit]

    def seen_by(self, fold: KeyedFold) -> "Arrivals":
        return self._replace(commits=[rows_for(fold, commit) for commit in self.commits])


class Arrival(NamedTuple):
    event: Happened
    at_us: int


@st.composite
def happenings(draw: st.DrawFn, make: Any, *fields: st.SearchStrategy[Any]) -> Arrival:
    """An event `make(time_us, *fields)`, when it happened, and when it arrives."""
    time_us = draw(TIMES)
    event = make(time_us, *[draw(field) for field in fields])
    return Arrival(Happened(event, time_us), time_us + draw(TRAVELS))


@st.composite
def arrivals(draw: st.DrawFn, events: st.SearchStrategy[Arrival]) -> Arrivals:
    """Any cut of events into commits, with heartbeats between them, and of these into batches.

    The order inside a commit is the one in which Hypothesis drew the events: any.
    """
    few, many = st.lists(events, min_size=1, max_size=8), st.lists(events, min_size=20, max_size=30)
    drawn = draw(few | many)
    cuts = sorted(draw(st.sets(TIMES, max_size=6)))
    commits: list[Any] = []
    for start, end in zip([-(10**9), *cuts], [*cuts, 10**9], strict=True):
        commits.append([arrival.event for arrival in drawn if start <= arrival.at_us < end])
        if draw(st.integers(0, 3)) == 0:
            commits.append(ClockAt(draw(MILLISECONDS) + draw(st.sampled_from([0, 0, 20_000]))))
    commits = [commit for commit in commits if commit]
    steps_us = [draw(st.integers(1, 12)) * 1_000 for _ in commits]  # whole ms, as ingestion does
    ingested_us = [FIRST_US + sum(steps_us[:number]) for number in range(1, len(commits) + 1)]
    group_of = draw(st.sampled_from([None, None, itemgetter(0)]))  # the events' first field
    return Arrivals(
        stamp(commits, ingested_us, group_of),
        frozenset(draw(st.sets(st.integers(1, len(commits))))),
        draw(st.sampled_from([1, 2, 7])),
    )


@st.composite
def initial_states(
    draw: st.DrawFn, fold: KeyedFold, states: st.SearchStrategy[Any], as_of_us: int
) -> dict[Any, Known]:
    """States of some keys at `as_of_us`; "z" never has an event."""
    spans = st.none()
    if fold.times_out:
        spans |= st.sampled_from([0, 1, 1_000, 4_999, 5_000, 20_000])
    known = {}
    for key in sorted(draw(st.sets(st.sampled_from("abz")))):
        state, span_us = draw(states), draw(spans)
        timeout_us = None if span_us is None else as_of_us + span_us
        if state is not None or timeout_us is not None:
            known[key] = Known(state, None if state is None else as_of_us, timeout_us)
    return known


def delay_us(fold: KeyedFold) -> int:
    return 0 if fold.in_processing_time else DELAY_US


def engine_for(
    fold: KeyedFold,
    buckets: int,
    since_us: int | None = None,
    initial: Mapping[Any, Known] | None = None,
) -> LocalFold:
    stored = [as_key_state(key, known) for key, known in (initial or {}).items()]
    return LocalFold(fold, delay_us(fold), buckets, since_us, stored)


def as_key_state(key: Any, known: Known) -> KeyState:
    changed_us = NO_STATE_US if known.changed_at_us is None else known.changed_at_us
    timeout_us = NEVER_US if known.timeout_at_us is None else known.timeout_at_us
    return KeyState(key, known.state, changed_us, timeout_us)


def run(engine: LocalFold, batches: Iterable[Sequence[StampedRow]]) -> LocalFold:
    for batch in batches:
        engine.run_batch(batch)
    return engine


def as_known(known: KeyState) -> Known:
    return Known(
        known.state,
        None if known.changed_at_us == NO_STATE_US else known.changed_at_us,
        None if known.timeout_at_us == NEVER_US else known.timeout_at_us,
    )


def came_to(
    fold: KeyedFold, engine: LocalFold, initial: Mapping[Any, Known] | None = None
) -> Result:
    """Return the result of a run in the oracle's form."""
    removed = engine.emitted.removed or [False] * len(engine.emitted.rows)
    rows = [
        row if is_gone else oracle.stored(fold, row)
        for row, is_gone in zip(engine.emitted.rows, removed, strict=True)
    ]
    emitted = list(zip(rows, engine.emitted.emitted_at_us, strict=True))
    table: Mapping[Any, Any] = Counter(emitted)
    if fold.output_mode == "update":
        table = merged(fold, projected(fold, initial or {}), emitted, engine.emitted.removed)
    states = {key: as_known(known) for key, known in engine.states().items()}
    dead_letters = dead_letters_in(fold, engine.dead_letters)
    timers = timers_in(engine.states().values()) if fold.timers else {}
    return Result(
        table, states, engine.pending(), engine.late, engine.excluded, dead_letters, timers
    )


def timers_in(states: Iterable[KeyState]) -> dict[Any, oracle.Timers]:
    """The named timers of each key that has one."""
    found = {}
    for known in states:
        stored = known.extra[-1] if known.extra else None
        if stored is not None:
            found[known.key] = {n: at for n, at in stored._asdict().items() if at is not None}
    return found


def dead_letters_in(
    fold: KeyedFold, dead_letters: Iterable[DeadLetter]
) -> Counter[oracle.DeadLetter]:
    """Dead letters as the oracle has them; their numbers must count those of each instant."""
    found: Counter[oracle.DeadLetter] = Counter()
    numbers: dict[Any, list[int]] = {}
    for call in dead_letters:
        assert (call.event is None) == (call.cause == "timeout")
        numbers.setdefault((call.key, call.at_us), []).append(call.number)
        event = None if call.event is None else fold.event(**json.loads(call.event))
        key = int(call.key) if fold.keys.kind == "bigint" else call.key
        found[oracle.DeadLetter(key, call.at_us, event)] += 1
    assert all(given == list(range(len(given))) for given in numbers.values())
    return found


def merged(
    fold: KeyedFold,
    table: dict[Any, Any],
    emitted: Iterable[tuple[Any, int]],
    removed: Iterable[bool],
) -> dict[Any, Any]:
    """An update stream's table after rows were merged into it, one after the other."""
    for (row, at_us), is_removed in zip(emitted, removed, strict=True):
        key = key_of_row(fold, row)
        table[key] = (row, at_us)
        if is_removed:
            del table[key]
    return table
