"""A key's events through the fold, one instant after the other: what each made of the state.

The fold's own calls in one process. That the steps are cut so finely changes nothing: no result
depends on how input is cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from include.fold.admission import is_late
from include.fold.arrow_values import column_values
from include.fold.definition import Key, KeyedFold
from include.fold.emitted import Emitted, KeyRun
from include.fold.event_order import order_events
from include.fold.settle import StateFunctionError, fold_runs
from include.fold.states import States
from include.page.key_rows import ARRIVAL_US, FEWER_DAYS, INGESTED_US
from include.settings import SettingsError

MOST_STEPS = 100_000


@dataclass(frozen=True)
class KeyEvent:
    """An event of the key. `was_late`: it came after the stream had passed it."""

    event: Any
    at_us: int  # on the fold's clock
    ingested_at_us: int
    was_late: bool


@dataclass(frozen=True)
class Step:
    """An instant of the fold's clock at which something happened to the key."""

    at_us: int
    events: Sequence[KeyEvent]  # none: a timeout, or the end of the state
    state: Any  # afterwards; None: there is none
    wakes_at_us: int  # the next timeout, timer or end of the state; NEVER_US for none
    emitted: Emitted
    failure: str | None = None  # the function's: nothing comes after it


def key_events(fold: KeyedFold, rows: pa.Table, delay_us: int) -> list[KeyEvent]:
    """Rows of `read_events` in the order in which they are folded."""
    events = order_events(fold, rows).events
    columns = [column_values(column, events[column.name]) for column in fold.event_columns]
    records = map(fold.event._make, zip(*columns, strict=True))  # type: ignore[attr-defined]
    beside = (events[name].to_pylist() for name in (fold.time_us, INGESTED_US, ARRIVAL_US))
    return [
        KeyEvent(record, at, ingested, _was_late(fold, at, arrival, delay_us))
        for record, at, ingested, arrival in zip(records, *beside, strict=True)
    ]


def _was_late(fold: KeyedFold, at_us: int, arrival_us: int | None, delay_us: int) -> bool:
    if arrival_us is None or fold.in_processing_time:
        return False
    return bool(is_late(at_us, arrival_us, delay_us))


def steps_of(
    fold: KeyedFold, key: Key, states: States, events: Sequence[KeyEvent], until_us: int
) -> Iterator[Step]:
    """The steps of `events`, all before `until_us`, from `states` on; timeouts in between.

    The last one has a `failure` when the function fails and nothing has been said of going on.
    SettingsError after MOST_STEPS, as each timeout may set the next: what came of them is not known.
    """
    for number, step in enumerate(_steps(fold, key, states, events, until_us)):
        if number == MOST_STEPS:
            raise SettingsError(
                f"more than {MOST_STEPS:,} things happened to the key since the savepoint before, "
                f"most of them timeouts: {FEWER_DAYS}",
                code="too_much",
                subject="days",
            )
        yield step
        if step.failure is not None:
            return


def _steps(
    fold: KeyedFold, key: Key, states: States, events: Sequence[KeyEvent], until_us: int
) -> Iterator[Step]:
    for at_us, group in groupby(events, key=attrgetter("at_us")):
        yield from _wakes(fold, key, states, at_us)
        yield _step(fold, key, states, at_us, list(group))
    yield from _wakes(fold, key, states, until_us)


def _wakes(fold: KeyedFold, key: Key, states: States, before_us: int) -> Iterator[Step]:
    while (at_us := states.wakes_at(key)) < before_us:
        yield _step(fold, key, states, at_us, [])


def _step(
    fold: KeyedFold, key: Key, states: States, at_us: int, events: Sequence[KeyEvent]
) -> Step:
    runs = [KeyRun(key, 0, len(events))] if events else []
    records, times_us = [event.event for event in events], [event.at_us for event in events]
    emitted, failed = Emitted([], [], []), None
    try:
        emitted = fold_runs(fold, states, runs, records, times_us, at_us + 1)
    except StateFunctionError as error:
        failed = str(error)
    return Step(
        at_us,
        events,
        states.get(key),
        states.wakes_at(key),
        emitted,
        failed,
    )
