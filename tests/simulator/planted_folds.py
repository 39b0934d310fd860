"""Bugs of what a fold knows of time, keys and values, to be planted: none was ever there."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from include.fold import (
    arrow_values,
    bucket,
    calls,
    definition,
    event_order,
    keys,
    records,
    states,
)
from include.fold.admission import NEVER_US
from include.fold.calls import Calls
from include.fold.definition import SEEN, SeenValues
from include.fold.group_state import TIMERS, GroupState
from include.fold.records import Items, Nested, Pairs
from include.fold.states import States
from tests.simulator.local_engine import LocalEngine
from tests.simulator.replaced import everywhere

Plant = Callable[[pytest.MonkeyPatch], None]


def ends(by_us: int) -> Plant:
    """States end at another instant than their time-to-live says."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        right = states.end_us

        def other(ttl_us: int | None, state: Any, touched_us: int) -> int:
            at_us = right(ttl_us, state, touched_us)
            return at_us if at_us == NEVER_US else at_us + by_us

        everywhere(patch, right, other)

    return planted


def of_savepoints(change: Callable[[pa.Table], pa.Table]) -> Plant:
    """What a rebuild or a backfill begins with is not what was written."""

    def planted(patch: pytest.MonkeyPatch) -> None:
        read = LocalEngine.savepoint_states
        patch.setattr(LocalEngine, "savepoint_states", lambda *asked: change(read(*asked)))

    return planted


def without(column: str) -> Callable[[pa.Table], pa.Table]:
    """All null."""

    def change(rows: pa.Table) -> pa.Table:
        if column not in rows.column_names:
            return rows
        position = rows.column_names.index(column)
        nulls = pa.nulls(rows.num_rows, rows[column].type)
        return rows.set_column(position, column, nulls)

    return change


def touched_later(rows: pa.Table) -> pa.Table:
    """As if each state had been touched a minute later than it was."""
    position = rows.column_names.index("changed_at_us")
    return rows.set_column(position, "changed_at_us", pc.add(rows["changed_at_us"], 60_000_000))


def timers_outlive_the_state(patch: pytest.MonkeyPatch) -> None:
    begin_timers, extra = GroupState.begin_timers, States.extra_of

    def stored(self: States, name: str, key: Any) -> Any:
        found = extra(self, name, key)
        return () if name == TIMERS and found is None else found

    def begin(self: Any, given: Any) -> None:
        if given is not None:  # else the state has ended
            begin_timers(self, given)

    patch.setattr(States, "extra_of", stored)
    patch.setattr(GroupState, "begin_timers", begin)


def timers_tie_by_declaration(patch: pytest.MonkeyPatch) -> None:
    def take_timer(self: Any, at_us: int) -> str | None:
        if self.timeout_at_us == at_us:
            return None
        name = next(name for name in self._names if self._timers.get(name) == at_us)
        del self._timers[name]
        return name

    patch.setattr(GroupState, "take_timer", take_timer)


def timers_come_before_events(patch: pytest.MonkeyPatch) -> None:
    """Of their own instant."""
    due_us_of, call = calls._due_us_of, Calls._call_what_is_due

    def early(fold: Any) -> Any:
        due_us = due_us_of(fold)
        return (lambda group: due_us(group) - 1) if fold.timers else due_us

    patch.setattr(calls, "_due_us_of", early)
    patch.setattr(
        Calls, "_call_what_is_due", lambda self, us: call(self, us + bool(self._fold.timers))
    )


def seen_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is known of a batch's events is all that a batch knows: a restart forgets the others."""
    extra = States.extra_of
    patch.setattr(States, "extra_of", lambda s, n, key: None if n == SEEN else extra(s, n, key))


def seen_ends(patch: pytest.MonkeyPatch) -> None:
    """A microsecond early."""
    is_over = SeenValues.is_over
    patch.setattr(SeenValues, "is_over", lambda self, at, until: is_over(self, at - 1, until))


def first_to_arrive_counts(patch: pytest.MonkeyPatch) -> None:
    """And not the first to have happened."""
    settle = bucket.settle

    def complete(fold: Any, read: Any, waiting: pa.Table, *until: Any) -> Any:
        if fold.seen is None or fold.keys.is_derived:
            return settle(fold, read, waiting, *until)
        first = _first_arrived(fold, waiting)
        made = settle(fold, read, first, *until)
        again = waiting.num_rows - first.num_rows
        return made._replace(rows_duplicate=made.rows_duplicate + again)

    everywhere(patch, settle, complete)


def _first_arrived(fold: Any, events: pa.Table) -> pa.Table:
    columns = [arrow_values.column_values(c, events[c.name]) for c in fold.event_columns]
    seen: dict[Any, int] = {}
    retained = []
    for values in zip(*columns, strict=True):
        event = fold.event(*values)
        at_us, value = event.event_time_us, (fold.keys.of(event), fold.seen.of(event))
        before_us = seen.get(value)
        again = before_us is not None and abs(at_us - before_us) <= fold.seen.within_us
        retained.append(value[1] is None or not again)
        if retained[-1]:
            seen[value] = at_us
    return events.filter(pa.array(retained, pa.bool_()))


def seen_slides(patch: pytest.MonkeyPatch) -> None:
    """A duplicate is one of the last of its kind, be that a duplicate itself."""

    def first_ones(
        values: SeenValues, known: States, run: Any, events: Any, times_us: Any
    ) -> list[int]:
        seen = {each.by: each.at_us for each in known.extra_of(SEEN, run.key) or ()}
        retained = []
        for position in range(run.start, run.end):
            value, at_us = values.of(events[position]), times_us[position]
            before_us = seen.get(value)
            if before_us is None or values.is_over(before_us, at_us):
                retained.append(position)
            if value is not None:
                seen.pop(value, None)
                seen[value] = at_us
        known.put_extra(SEEN, run.key, tuple(map(event_order.Seen._make, seen.items())) or None)
        return retained

    patch.setattr(event_order, "_first_ones", first_ones)


def a_part_of_the_key_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """Keys are told apart by all of their parts but the last."""
    of_parts = keys._codes_of_parts

    def of_fewer(keys: pa.StructArray) -> tuple[Any, pa.StructArray]:
        parts = keys.flatten()[:-1]
        fewer = pa.StructArray.from_arrays(parts, names=[str(n) for n in range(len(parts))])
        of, _ = of_parts(fewer)
        _, first, together = np.unique(of, return_index=True, return_inverse=True)
        return together, keys.take(pa.array(first))

    patch.setattr(keys, "_codes_of_parts", of_fewer)


def none_is_a_key_like_another(patch: pytest.MonkeyPatch) -> None:
    """A part that is None is taken for the first value that there is."""
    codes_of = keys.codes_of

    def with_none(keys: Any) -> Any:
        of, distinct = codes_of(keys)
        if pa.types.is_struct(distinct.type) or not distinct.null_count:
            return of, distinct
        absent = int(np.flatnonzero(np.asarray(distinct.is_null()))[0])
        other = 0 if absent else min(1, len(distinct) - 1)
        return np.where(of == absent, other, of), distinct

    everywhere(patch, codes_of, with_none)


def a_key_changes_its_bucket(patch: pytest.MonkeyPatch) -> None:
    """Which one it is in depends on how many rows come together."""
    hashes_of = keys.hashes_of
    patch.setattr(keys, "hashes_of", lambda keys: hashes_of(keys) + len(keys))


def digits_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Decimals are kept as they were made, and get their digits in the store alone."""
    patch.setattr(records, "exact_decimal", lambda value, precision, scale: value)


def dicts_keep_their_order(patch: pytest.MonkeyPatch) -> None:
    """As they were made, until the store orders them."""

    def stored(self: Pairs, value: Mapping[Any, Any], name: str) -> Any:
        return {key: self.item.stored(of, f"{name}[{key!r}]") for key, of in value.items()}

    patch.setattr(Pairs, "_stored", stored)


def none_becomes_empty(patch: pytest.MonkeyPatch) -> None:
    """A tuple or dict that is not there is stored as one without items. (Not what a key has seen, which
    is the project's.)"""
    seen = definition.Seen

    def filled(shape: Any, value: Any) -> Any:
        if value is not None or not isinstance(shape, (Items, Pairs)):
            return value
        is_seen = isinstance(shape, Items) and getattr(shape.item, "record", None) is seen
        return None if is_seen else () if isinstance(shape, Items) else {}

    stored_with(patch, filled)


def zeros_lose_their_sign(patch: pytest.MonkeyPatch) -> None:
    """In what is stored of numbers."""
    stored_with(patch, lambda shape, value: value + 0.0 if isinstance(value, float) else value)


def stored_with(patch: pytest.MonkeyPatch, change: Callable[[Any, Any], Any]) -> None:
    """Values, and all that they are made of, are changed as they are stored."""
    encode = arrow_values.encode

    def changed(shape: Any, value: Any) -> Any:
        if value is not None and isinstance(shape, Nested):
            value = tuple(map(changed, (of for _, of in shape.parts), value))
        elif value is not None and isinstance(shape, Items):
            value = tuple(changed(shape.item, item) for item in value)
        elif value is not None and isinstance(shape, Pairs):
            value = {key: changed(shape.item, of) for key, of in value.items()}
        return change(shape, value)

    def encode_changed(shape: Any, values: Any) -> pa.Array:
        return encode(shape, [changed(shape, value) for value in values])

    everywhere(patch, encode, encode_changed)


def ties_as_they_arrive(patch: pytest.MonkeyPatch) -> None:
    """Events of one instant are folded in the order in which they came."""
    by_key_and_time = event_order._by_key_and_time

    def untied(codes: Any, times: Any) -> tuple[Any, bool]:
        by_key_and_time(codes, times)
        return np.lexsort((times, codes)), False

    patch.setattr(event_order, "_by_key_and_time", untied)


FOLDS: dict[str, Plant] = {
    "ttl-late": ends(1),
    "ttl-early": ends(-1),
    "ttl-of-savepoint": of_savepoints(touched_later),
    "ttl-not-of-timers": timers_outlive_the_state,
    "timers-lost-in-savepoint": of_savepoints(without(TIMERS)),
    "timers-by-declaration": timers_tie_by_declaration,
    "timers-before-events": timers_come_before_events,
    "seen-lost-at-restart": seen_is_forgotten,
    "seen-lost-in-savepoint": of_savepoints(without(SEEN)),
    "seen-ends-early": seen_ends,
    "seen-slides": seen_slides,
    "seen-by-arrival": first_to_arrive_counts,
    "key-part-dropped": a_part_of_the_key_is_dropped,
    "key-none": none_is_a_key_like_another,
    "key-bucket": a_key_changes_its_bucket,
    "value-digits": digits_are_lost,
    "value-dict-order": dicts_keep_their_order,
    "value-none": none_becomes_empty,
    "value-zero-sign": zeros_lose_their_sign,
    "order-of-ties": ties_as_they_arrive,
}
