"""One bucket's share of a batch: which events settle, in which order, and what they emit.

Arrow does the sorting and the cutting; the fold gets plain Python lists.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.declared_values import declared
from include.fold.definition import REMOVED, KeyedFold
from include.fold.emitted import Emitted, KeyRun, Rejected
from include.fold.failures import BrokenInvariantError
from include.fold.schemas import REJECTED, event_schema, output_schema
from include.fold.settle import fold_runs
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
    ordered, runs = order_events(fold, settled)
    with _no_garbage_collection():
        states = read_states()
        kept_before = states.kept_without_timeout()
        times_us = _values(ordered[fold.time_us])
        emitted = fold_runs(fold, states, runs, _events(fold, ordered, runs), times_us, until_us)
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


def order_events(fold: KeyedFold, events: pa.Table) -> tuple[pa.Table, list[KeyRun]]:
    """`events` by key, within a key by time, ties by the whole row; and each key's run."""
    if not events.num_rows:
        return events, []
    events = events.combine_chunks()
    codes, distinct = _codes(events[fold.key])
    times = events[fold.time_us].to_numpy()
    order = np.lexsort((times, codes))
    if _has_ties(codes[order], times[order]):
        others = [name for name in events.column_names if name not in (fold.key, fold.time_us)]
        ranks = [rank for name in reversed(others) for rank in _ranks(events[name])]
        order = np.lexsort((*ranks, times, codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    keys = distinct.take(pa.array(codes[order][starts])).to_pylist()
    bounds = [*starts.tolist(), events.num_rows]
    runs = [KeyRun(*run) for run in zip(keys, bounds[:-1], bounds[1:], strict=True)]
    return events.take(order), runs


def _codes(keys: pa.ChunkedArray) -> tuple[Any, pa.Array]:
    """Each key as a small integer, and the distinct keys that the integers stand for."""
    encoded = keys.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def _has_ties(codes: Any, times: Any) -> bool:
    return bool(np.any((codes[1:] == codes[:-1]) & (times[1:] == times[:-1])))


def _ranks(column: pa.ChunkedArray) -> list[Any]:
    """What to sort a column by, the most significant last: the order of `engines.local`, too.

    Nulls first, then by value. Values that differ in anything never tie, or the order in which
    they arrived would show.
    """
    if pa.types.is_floating(column.type):
        return _float_ranks(column)
    nulls_first = [("", "ascending", "at_start")]  # an array has no name to sort by
    return [pc.rank(column, sort_keys=nulls_first, tiebreaker="dense").to_numpy()]


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


def _events(fold: KeyedFold, ordered: pa.Table, runs: list[KeyRun]) -> list[Any]:
    keys = [key for key, start, end in runs for _ in range(start, end)]
    columns = [
        keys if column.name == fold.key else _values(ordered[column.name])
        for column in fold.event_columns
    ]
    # What `_make` does, without its length check: zip(strict) and the schema have made it.
    make = partial(tuple.__new__, fold.event)
    return list(map(make, zip(*columns, strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if (
        column.null_count
        or not pa.types.is_primitive(column.type)
        or pa.types.is_boolean(column.type)
    ):
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def outputs_table(fold: KeyedFold, emitted: Emitted) -> pa.Table | None:
    """What was emitted, as Arrow; None for nothing.

    Raises DefinitionError for a value of another type than the output's field declares.
    """
    if not emitted.rows:
        return None
    schema = output_schema(fold)
    columns: list[Any] = [*zip(*emitted.rows, strict=True), emitted.emitted_at_us]
    if REMOVED in schema.names:
        columns.append(emitted.removed)
    return pa.table(
        [declared(values, field) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


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
