"""One bucket's share of a batch: which events settle, in which order, and what they emit.

Arrow does the sorting and the cutting; the fold gets plain Python lists.
"""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import localcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.arrow_values import column_values, decode, encode, python_values
from include.fold.codes import codes_of
from include.fold.declared_values import declared
from include.fold.definition import KEY, REMOVED, KeyedFold
from include.fold.emitted import Emitted, KeyRun, Rejected
from include.fold.failures import BrokenInvariantError, StateFunctionError
from include.fold.records import MAX_INT, Column, DefinitionError
from include.fold.schemas import REJECTED, event_schema, output_schema
from include.fold.settle import fold_runs
from include.fold.shapes import ARITHMETIC, Shape
from include.fold.states import States


class Settled(NamedTuple):
    """What settling a bucket came to. `states` is None when nothing settled: none was read."""

    outputs: pa.Table | None
    states: States | None
    pending: pa.Table
    rows_folded: int
    kept_change: int  # of the states without a timeout
    rejected: pa.Table | None = None  # REJECTED; None for none


def settle(
    fold: KeyedFold,
    read_states: Callable[[], States],
    waiting: pa.Table,
    until_us: int,
    timeouts_due: bool,
) -> Settled:
    """Fold all events of `waiting` before `until_us`; the others stay pending.

    Timeouts before `until_us` fire, too: `timeouts_due` says that there may be some.
    `waiting` has `event_schema(fold)`, in any order. `read_states` is called only when
    there is something to fold.
    """
    is_settled = pc.less(waiting[fold.time_us], until_us)
    settled = waiting.filter(is_settled)
    if not (settled.num_rows or timeouts_due):
        return Settled(None, None, waiting, 0, 0)
    ordered = order_events(fold, settled)
    states = read_states()
    kept_before = states.kept_without_timeout()
    with _no_garbage_collection():
        states.fetch(ordered.keys)
        runs, times_us = ordered.runs(), python_values(ordered.events[fold.time_us])
        events = _events(fold, ordered, times_us)
        emitted = fold_runs(fold, states, runs, events, times_us, until_us)
        outputs = outputs_table(fold, emitted)
    pending = waiting.filter(pc.invert(is_settled))
    kept_change = states.kept_without_timeout() - kept_before
    rejected = rejected_table(emitted.rejected)
    return Settled(outputs, states, pending, settled.num_rows, kept_change, rejected)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Python counts new tuples and goes looking for cycles among them, which there are none of:
    with a tuple per event that was a third of the fold."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_not_folded(fold: KeyedFold, events: pa.Table, folded_until_us: int, bucket: int) -> None:
    """Raise BrokenInvariantError for an event before what the bucket has already folded.

    Admission and whole commits make this impossible; if it happens all the same, results
    would depend on how the input was cut, so nothing may be written.
    """
    if not events.num_rows:
        return
    first_us = pc.min(events[fold.time_us]).as_py()
    if first_us < folded_until_us:
        raise BrokenInvariantError(
            f"bucket {bucket} got an event at {first_us} us, but has folded all before "
            f"{folded_until_us} us (stream {fold.stream}): a bronze commit was cut, or its "
            "watermark columns were changed. Make its state anew from bronze: `./stateful reseed "
            f"{fold.stream} --apply`"
        )


class Ordered(NamedTuple):
    """Events by key, within a key by time, ties by the whole row; and where each key's begin."""

    events: pa.Table
    keys: pa.Array  # each once, in the order of their events
    bounds: list[int]  # of the keys' events, the end of the last one's too
    shape: Shape  # of a key

    def runs(self) -> list[KeyRun]:
        """Each key's events, by their positions."""
        keys = decode(self.shape, self.keys, "key")
        runs = zip(keys, self.bounds[:-1], self.bounds[1:], strict=True)
        return list(map(KeyRun._make, runs))


def order_events(fold: KeyedFold, events: pa.Table) -> Ordered:
    """`events` (of `event_schema(fold)`, in any order) in the order in which they are folded."""
    events = events.combine_chunks()
    if not events.num_rows:
        return Ordered(events, keys_of(fold, events).combine_chunks(), [0], fold.keys.shape)
    codes, distinct = codes_of(keys_of(fold, events))
    times = events[fold.time_us].to_numpy()
    order, has_ties = _by_key_and_time(codes, times)
    if has_ties:
        same = {*fold.keys.names, KEY, fold.time_us}
        if fold.keys.is_derived:
            same = {KEY, fold.time_us}
        others = [name for name in events.column_names if name not in same]
        ranks = [rank for name in reversed(others) for rank in _ranks(events[name])]
        order = np.lexsort((*ranks, times, codes))
    codes = codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    keys = distinct.take(pa.array(codes[starts]))
    bounds = [*starts.tolist(), events.num_rows]
    return Ordered(events.take(order), keys, bounds, fold.keys.shape)


def _by_key_and_time(codes: Any, times: Any) -> tuple[Any, bool]:
    """The order by `codes`, then `times`; and whether some have both in common.

    As one number each where that has room for both: sorting those takes a tenth of the time.
    """
    first = int(times.min())
    span = int(times.max()) - first + 1
    if (int(codes.max()) + 1) * span <= MAX_INT:
        both = codes.astype(np.int64) * span + (times - first)
        order = np.argsort(both)
        both = both[order]
        return order, bool((both[1:] == both[:-1]).any())
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    return order, bool(np.any((codes[1:] == codes[:-1]) & (times[1:] == times[:-1])))


def keys_of(fold: KeyedFold, events: pa.Table) -> pa.ChunkedArray:
    """The key of each event, as `state_schema(fold)` has them."""
    keys = fold.keys
    if keys.is_derived:
        return events[KEY]
    if len(keys.names) == 1:
        return events[keys.names[0]]
    parts = [events[name].combine_chunks() for name in keys.names]
    return pa.chunked_array([pa.StructArray.from_arrays(parts, names=keys.names)])


def _ranks(column: pa.ChunkedArray) -> list[Any]:
    """What to sort a column by, the most significant last: the order of `engines.local`, too.

    Nulls first, then by value. Values that differ in anything never tie, or the order in which
    they arrived would show.
    """
    if pa.types.is_nested(column.type):
        return [_nested_ranks(column)]
    if pa.types.is_floating(column.type):
        return _float_ranks(column)
    nulls_first = [("", "ascending", "at_start")]  # an array has no name to sort by
    return [pc.rank(column, sort_keys=nulls_first, tiebreaker="dense").to_numpy()]


def _nested_ranks(column: pa.ChunkedArray) -> Any:
    """One by one: only events that tie in key and time come here."""
    sort_keys = list(map(_sort_key, column.to_pylist()))
    ranks = {each: rank for rank, each in enumerate(sorted(set(sort_keys)))}
    return np.array([ranks[each] for each in sort_keys])


def _sort_key(value: Any) -> tuple[Any, ...]:
    """None first; of what it is made of one after the other, a map's pairs by their keys."""
    if value is None:
        return (NO_VALUE,)
    if isinstance(value, float):
        ordered, kind = _float_ranks(pa.chunked_array([pa.array([value, math.nan])]))
        return (int(kind[0]), int(ordered[0]))
    if isinstance(value, dict):
        return (NUMBER, tuple(map(_sort_key, value.values())))
    if isinstance(value, (list, tuple)):
        is_map = bool(value) and isinstance(value[0], tuple)
        items = map(_sort_key, value)
        return (NUMBER, tuple(sorted(items) if is_map else items))
    return (NUMBER, value)


NO_VALUE, NO_NUMBER, NUMBER = 0, 1, 2
ALL_BUT_SIGN = np.int64(2**63 - 1)


def _float_ranks(column: pa.ChunkedArray) -> list[Any]:
    """By the bits: to a comparison -0.0 is 0.0, and one NaN neither equal to nor before another.

    As integers the bits of numbers are in the numbers' order, those of negative ones reversed.
    """
    values = column.to_numpy()
    bits = values.view(np.int64)
    ordered = np.where(bits < 0, bits ^ ALL_BUT_SIGN, bits)
    is_nan = np.isnan(values)  # or null
    if not is_nan.any():
        return [ordered]
    kinds = np.where(is_nan, NO_NUMBER, NUMBER)
    if column.null_count:
        kinds[column.is_null().to_numpy()] = NO_VALUE
    return [ordered, kinds]


def derived_keys(fold: KeyedFold, events: pa.Table) -> pa.Array:
    """What the fold's key function makes of each event. It may ask for all of an event's fields."""
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


def outputs_table(fold: KeyedFold, emitted: Emitted) -> pa.Table | None:
    """What was emitted, as Arrow; None for nothing.

    Raises DefinitionError for a value of another type than the output's field declares.
    """
    if not emitted.rows:
        return None
    schema = output_schema(fold)
    columns = zip(fold.output_columns, zip(*emitted.rows, strict=True), schema, strict=False)
    arrays = [_record_array(column, values, field) for column, values, field in columns]
    arrays.append(pa.array(emitted.emitted_at_us, pa.int64()))
    if REMOVED in schema.names:
        arrays.append(pa.array(emitted.removed, pa.bool_()))
    return pa.table(arrays, schema=schema)


def _record_array(column: Column, values: Sequence[Any], field: pa.Field) -> pa.Array:
    """`values` of an output's column as Arrow."""
    if column.is_plain:
        return declared(values, field)
    name = f"output {column.name}"
    try:
        stored = [
            None if value is None and field.nullable else column.shape.stored(value, name)
            for value in values
        ]
    except (TypeError, ValueError) as error:
        raise DefinitionError(str(error)) from error
    return encode(column.shape, stored)


def rejected_table(rejected: Sequence[Rejected]) -> pa.Table | None:
    """Rejected calls as Arrow; None for none."""
    if not rejected:
        return None
    columns = zip(*rejected, strict=True)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, REJECTED, strict=True)]
    return pa.table(arrays, schema=REJECTED)


def no_events(fold: KeyedFold) -> pa.Table:
    """An empty table of events."""
    return event_schema(fold).empty_table()
