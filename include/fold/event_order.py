"""The order in which a bucket's events are folded, and which of them its keys have folded before."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.arrow_values import decode
from include.fold.definition import KEY, SEEN, KeyedFold, KeyRun, Seen, SeenValues
from include.fold.keys import codes_of
from include.fold.records import MAX_INT, Shape
from include.fold.states import States


class Ordered(NamedTuple):
    """Events by key, within a key by time, ties by the whole row; and the bounds of each key's events."""

    events: pa.Table
    keys: pa.Array  # each once, in the order of their events
    bounds: list[int]  # where each key's events begin, and the end of the last one's
    shape: Shape  # of a key

    def runs(self) -> list[KeyRun]:
        """Return the positions of each key's events."""
        keys = decode(self.shape, self.keys, "key")
        runs = zip(keys, self.bounds[:-1], self.bounds[1:], strict=True)
        return list(map(KeyRun._make, runs))


def order_events(fold: KeyedFold, events: pa.Table) -> Ordered:
    """Return `events` (`event_schema(fold)`, in any order) in the order in which they are folded."""
    events = events.combine_chunks()
    if not events.num_rows:
        return Ordered(events, keys_of(fold, events).combine_chunks(), [0], shape=fold.keys.shape)
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
    return Ordered(events.take(order), keys, bounds, shape=fold.keys.shape)


def _by_key_and_time(codes: Any, times: Any) -> tuple[Any, bool]:
    """Return the order by `codes`, then `times`, and True if some have both in common.

    Sorted by one number for both where 64 bits have room for it: that takes a tenth of the time.
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
    """Return the key of each event, as `state_schema(fold)` has them."""
    keys = fold.keys
    if keys.is_derived:
        return events[KEY]
    if len(keys.names) == 1:
        return events[keys.names[0]]
    parts = [events[name].combine_chunks() for name in keys.names]
    return pa.chunked_array([pa.StructArray.from_arrays(parts, names=keys.names)])


def _ranks(column: pa.ChunkedArray) -> list[Any]:
    """Return the keys to sort a column by, the most significant last: nulls first, then by value.

    Values that differ in anything never tie, or the order of arrival would show.
    """
    if pa.types.is_nested(column.type):
        return [_nested_ranks(column)]
    if pa.types.is_floating(column.type):
        return _float_ranks(column)
    nulls_first = [("", "ascending", "at_start")]  # an array has no name to sort by
    return [pc.rank(column, sort_keys=nulls_first, tiebreaker="dense").to_numpy()]


def _nested_ranks(column: pa.ChunkedArray) -> Any:
    """Rank values one by one: only events that tie in key and time come here."""
    sort_keys = list(map(_sort_key, column.to_pylist()))
    ranks = {each: rank for rank, each in enumerate(sorted(set(sort_keys)))}
    return np.array([ranks[each] for each in sort_keys])


def _sort_key(value: Any) -> tuple[Any, ...]:
    """Return the key to sort a nested value by: None first, a map's pairs by their keys."""
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
    """Rank floats by their bits, as -0.0 equals 0.0 and no NaN itself; those of negative ones are reversed."""
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


def distinct(
    values: SeenValues,
    states: States,
    runs: Iterable[KeyRun],
    events: Sequence[Any],
    times_us: Sequence[int],
) -> tuple[list[KeyRun], list[Any], list[int], int]:
    """Return the runs, events and times that are no duplicates, and the number of duplicates."""
    retained_runs: list[KeyRun] = []
    retained: list[int] = []
    read = 0
    for run in runs:
        first = len(retained)
        retained += _first_ones(values, states, run, events, times_us)
        read += run.end - run.start
        if len(retained) > first:
            retained_runs.append(KeyRun(run.key, first, len(retained)))
    own, times = [events[n] for n in retained], [times_us[n] for n in retained]
    return retained_runs, own, times, read - len(retained)


def _first_ones(
    values: SeenValues, states: States, run: KeyRun, events: Sequence[Any], times_us: Sequence[int]
) -> list[int]:
    seen = {each.by: each.at_us for each in states.extra_of(SEEN, run.key) or ()}
    first_ones = []
    for position in range(run.start, run.end):
        value, at_us = values.of(events[position]), times_us[position]
        before_us = seen.get(value)
        if before_us is not None and not values.is_over(before_us, at_us):
            continue
        first_ones.append(position)
        if value is not None:
            seen.pop(value, None)  # or it would keep its place: they are in the order of time
            seen[value] = at_us
    if first_ones:
        states.put_extra(SEEN, run.key, tuple(map(Seen._make, seen.items())) or None)
    return first_ones
