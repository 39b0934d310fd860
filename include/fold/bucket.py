"""One bucket's share of a batch: rows of bronze as events, and the fold of those that are complete.

Arrow does the sorting and the cutting; the fold gets plain Python lists.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import localcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import instant_of
from include.fold.arrow_values import (
    DEAD_LETTERS,
    column_values,
    encode,
    event_schema,
    output_schema,
    outputs_table,
    python_values,
)
from include.fold.calls import fold_runs
from include.fold.definition import EVENT_TIME_US, INGESTED_AT_US, KEY, DeadLetter, KeyedFold
from include.fold.event_order import Ordered, order_events
from include.fold.failures import ARITHMETIC, BrokenInvariantError, StateFunctionError
from include.fold.records import Column
from include.fold.states import States


class Complete(NamedTuple):
    """A bucket after a pass: the outputs of its complete events and timeouts, its states and pending events."""

    outputs: pa.Table
    states: States | None  # None when nothing was complete: none was read
    pending: pa.Table
    dead_letters: pa.Table  # DEAD_LETTERS
    rows_folded: int = 0  # without the duplicates
    rows_duplicate: int = 0


def fold_complete(
    fold: KeyedFold,
    read_states: Callable[[], States],
    waiting: pa.Table,
    until_us: int,
    timeouts_due: bool,
) -> Complete:
    """Fold all events of `waiting` (in any order) before `until_us`; the others stay pending.

    Timeouts before it fire, too, if `timeouts_due` says that there may be some.
    """
    is_complete = pc.less(waiting[fold.time_us], until_us)
    complete = waiting.filter(is_complete)
    if not (complete.num_rows or timeouts_due):
        nothing = output_schema(fold).empty_table()
        return Complete(nothing, None, waiting, DEAD_LETTERS.empty_table())
    ordered = order_events(fold, complete)
    states = read_states()
    with _no_garbage_collection():
        states.fetch(ordered.keys)
        runs, times_us = ordered.runs(), python_values(ordered.events[fold.time_us])
        events = _events(fold, ordered, times_us)
        emitted = fold_runs(fold, states, runs, events=events, times_us=times_us, until_us=until_us)
        outputs = outputs_table(fold, emitted)
    return Complete(
        outputs,
        states,
        waiting.filter(pc.invert(is_complete)),
        dead_letters_table(emitted.dead_letters),
        rows_folded=complete.num_rows - emitted.duplicates,
        rows_duplicate=emitted.duplicates,
    )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep Python from looking for cycles among new tuples, which have none: with one per event that was a
    third of the fold."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_not_folded(fold: KeyedFold, events: pa.Table, folded_until_us: int, bucket: int) -> None:
    """Raise BrokenInvariantError for an event before what the bucket has already folded."""
    if not events.num_rows:
        return
    first_us = pc.min(events[fold.time_us]).as_py()
    if first_us < folded_until_us:
        raise BrokenInvariantError(
            f"bucket {bucket} of {fold.stream} got an event at {first_us} us, but has folded all before "
            f"{folded_until_us} us: a bronze commit was cut, or its watermark columns were changed",
            code="changed_by_others",
            subject=fold.stream,
            command=f"./stateful rebuild {fold.stream} --apply",
        )


def derived_keys(fold: KeyedFold, events: pa.Table) -> pa.Array:
    """Return the keys of events, computed by the fold's own function."""
    columns = [column_values(column, events[column.name]) for column in fold.event_columns]
    records = list(map(partial(tuple.__new__, fold.event), zip(*columns, strict=True)))
    with localcontext(ARITHMETIC):
        return encode(fold.keys.shape, [_derived_key(fold, record) for record in records])


def _derived_key(fold: KeyedFold, event: Any) -> Any:
    try:
        return fold.keys.of(event)
    except Exception as error:
        raise StateFunctionError(
            f"stream {fold.stream}: key {fold.keys.text()} failed for {event!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _events(fold: KeyedFold, ordered: Ordered, times_us: list[int]) -> list[Any]:
    columns = [
        times_us if column.name == fold.time_us else _event_values(fold, ordered, column)
        for column in fold.event_columns
    ]
    # What `_make` does, without its length check: zip(strict) and the schema have made it.
    make = partial(tuple.__new__, fold.event)
    return list(map(make, zip(*columns, strict=True)))


def _event_values(fold: KeyedFold, ordered: Ordered, column: Column) -> list[Any]:
    if column.name != fold.key:
        return column_values(column, ordered.events[column.name])
    # One object for all events of a key: texts are dear to make.
    keys = np.empty(len(ordered.keys), object)
    keys[:] = column_values(column, ordered.keys)
    return np.repeat(keys, np.diff(ordered.bounds)).tolist()


def dead_letters_table(dead_letters: Sequence[DeadLetter]) -> pa.Table:
    if not dead_letters:
        return DEAD_LETTERS.empty_table()
    columns = zip(*dead_letters, strict=True)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, DEAD_LETTERS, strict=True)]
    return pa.table(arrays, schema=DEAD_LETTERS)


def no_events(fold: KeyedFold) -> pa.Table:
    return event_schema(fold).empty_table()


# What ingestion adds to every row, and a record may ask for.
INSTANTS = {EVENT_TIME_US: "event_time", INGESTED_AT_US: "ingested_at"}


def event_names(fold: KeyedFold) -> set[str]:
    """Return the columns of bronze that the events of `fold` are made of."""
    return {INSTANTS.get(name, name) for name in event_schema(fold).names if name != KEY}


def dates_within(date: pc.Expression, from_us: int | None, until_us: int | None) -> pc.Expression:
    """Return the condition for the partitions of bronze that may have events between two instants; None: no bound."""
    within = pc.scalar(True)
    if from_us is not None:
        within &= date >= instant_of(from_us).date()
    if until_us is not None:
        within &= date <= instant_of(until_us).date()
    return within


def as_events(rows: pa.Table, fold: KeyedFold) -> pa.Table:
    """Return rows of bronze as events (`event_schema(fold)`)."""
    schema = event_schema(fold)
    columns = {
        name: rows[INSTANTS[name]].cast(pa.int64()) if name in INSTANTS else rows[name]
        for name in schema.names
        if name != KEY
    }
    events = {name: of.cast(schema.field(name).type) for name, of in columns.items()}
    if fold.keys.is_derived:
        events[KEY] = derived_keys(fold, pa.table(events))
    return pa.table(events, schema=schema)
