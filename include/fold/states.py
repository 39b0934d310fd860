"""The states of a bucket's keys: Arrow rows, as they are stored, and Python objects of those that a pass touches.

A batch touches few of a bucket's keys: the rows of all others go back to the store as they came.
States of an older schema become those of the fold by the stream's own `migrate_state`.
"""

from collections.abc import Iterable, Iterator
from decimal import localcontext
from functools import reduce
from itertools import compress, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import NEVER_US
from include.fold.arrow_values import decode, encode, python_values, state_schema
from include.fold.definition import SEEN, Key, KeyedFold, MigrateState, SeenValues
from include.fold.failures import ARITHMETIC
from include.fold.group_state import TIMERS
from include.fold.keys import positions_of
from include.fold.records import MAX_INT, MIN_INT, Scalar


def without_expired(fold: KeyedFold, seen: SeenValues, rows: pa.Table, until_us: int) -> pa.Table:
    """Return rows of states without the seen values that no event from `until_us` on can repeat."""
    lists = rows[SEEN].combine_chunks()
    at_us = _instants(lists)
    over = pc.less(at_us, until_us - seen.within_us)
    if not pc.any(over).as_py():
        return rows
    retained = _filtered(lists, ~np.asarray(over))
    rows = rows.set_column(rows.schema.get_field_index(SEEN), rows.schema.field(SEEN), retained)
    return with_something(fold, rows)


def with_something(fold: KeyedFold, rows: pa.Table) -> pa.Table:
    """Return rows without those of keys that have neither state, timeout, timers nor seen values."""
    holding = ["state", "timeout_at_us", *(column.name for column in fold.extra)]
    is_there = np.logical_or.reduce([np.asarray(rows[name].is_valid()) for name in holding])
    return rows if is_there.all() else rows.filter(pa.array(is_there)).combine_chunks()


def first_expiry_us(seen: SeenValues, rows: pa.Table) -> int:
    """Return the instant at which the first seen value is over; NEVER_US for none."""
    first_us = pc.min(_instants(rows[SEEN].combine_chunks())).as_py()
    return NEVER_US if first_us is None else int(first_us) + seen.within_us


def _instants(lists: pa.ListArray) -> pa.Array:
    return pc.struct_field(lists.flatten(), "at_us")


def _filtered(lists: pa.ListArray, keep: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> pa.Array:
    """Return the lists with the items to `keep` alone; null where none is left."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    ends = np.append(0, np.append(0, keep.cumsum())[lengths.cumsum()])
    items = lists.flatten().filter(pa.array(keep))
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), items, type=lists.type, mask=pa.array(np.diff(ends) == 0)
    )


def wake_us(fold: KeyedFold, rows: pa.Table) -> pa.ChunkedArray:
    """Return the instant at which each key times out, has a timer or ends; null for never."""
    wakes_us = [rows["timeout_at_us"]]
    if fold.ttl_us is not None:
        wakes_us.append(pc.add(rows["changed_at_us"], fold.ttl_us))
    wakes_us += [pc.struct_field(rows[TIMERS], name) for name in fold.timers]
    return pc.min_element_wise(*wakes_us) if wakes_us[1:] else wakes_us[0]


# In place of the time of the last change: the key has a timeout, but no state.
NO_STATE_US = -(2**63)


class KeyState(NamedTuple):
    """One key's state (None: only a timeout), the time of its last change, and its timeout."""

    key: Key
    state: Any
    changed_at_us: int
    timeout_at_us: int  # NEVER_US for none
    extra: tuple[Any, ...] = ()  # a value for each column of the fold's `extra`


Known = tuple[Any, int, int]  # state, changed_at_us and timeout_at_us of a key
ABSENT: Known = (None, NO_STATE_US, NEVER_US)


def end_us(ttl_us: int | None, state: Any, touched_us: int) -> int:
    """Return the end of a state that no call touches after `touched_us`; NEVER_US for never."""
    return NEVER_US if ttl_us is None or state is None else touched_us + ttl_us


class States:
    """The states of some keys, of which `rows` (of `state_schema(fold)`) are stored."""

    def __init__(self, fold: KeyedFold, rows: pa.Table | None = None) -> None:
        self.keys_changed = False  # keys came or went: known after `rows`
        self._fold = fold
        self._stored = rows
        self._known: dict[Key, Known] = {}  # of the keys that were fetched
        self._extra: dict[str, dict[Key, Any]] = {column.name: {} for column in fold.extra}
        self._positions: list[int] = []  # of the same keys among the stored ones; -1 for none
        self._key = fold.keys.shape

    def fetch(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Look `keys` (distinct ones) up in the stored rows, all at once: far cheaper than one by one."""
        asked = decode(self._key, keys, "key")
        if self._known:
            is_new = [key not in self._known for key in asked]
            keys, asked = keys.filter(pa.array(is_new, pa.bool_())), [*compress(asked, is_new)]
        stored = self._stored_rows()
        positions = positions_of(keys, stored["key"])
        rows = stored.take(positions[positions >= 0])
        found = iter(self._objects(rows))
        if self._extra:
            self._fetch_extra(rows)
        at = positions.tolist()
        known_now = [ABSENT if position < 0 else next(found) for position in at]
        self._known.update(zip(asked, known_now, strict=True))
        self._positions += at

    def get(self, key: Key) -> Any:
        """Return the state of `key`, or None."""
        return (self._known.get(key) or self._fetched(key))[0]

    def known(self, key: Key) -> Known:
        """Return the state of `key` or None, the time of its last change, and its timeout."""
        return self._known.get(key) or self._fetched(key)

    def extra_of(self, name: str, key: Key) -> Any:
        """Return the value of `key` in one of the fold's `extra` columns; None for nothing."""
        self.known(key)
        return self._extra[name].get(key)

    def put_extra(self, name: str, key: Key, value: Any) -> None:
        self.known(key)
        self._extra[name][key] = value

    def put(
        self,
        key: Key,
        state: Any,
        changed_at_us: int,
        timeout_at_us: int = NEVER_US,
        extra: tuple[Any, ...] = (),
    ) -> None:
        """Set the state of `key`; its `extra` values stay unless they are given.

        TypeError for a value that its column cannot hold, UnicodeEncodeError for half a surrogate pair.
        """
        if key not in self._known:
            self._fetched(key)
        if extra:
            for values, value in zip(self._extra.values(), extra, strict=True):
                values[key] = value
        if state is None:
            is_gone = timeout_at_us == NEVER_US
            self._known[key] = ABSENT if is_gone else (None, NO_STATE_US, timeout_at_us)
            return
        self._known[key] = (self._fold.stored(state), changed_at_us, timeout_at_us)

    def put_all(self, keys: list[Key], states: list[Any], changed_at_us: list[int]) -> bool:
        """Put many fetched keys without timeouts at once; False, and nothing is done, if `put` must check one."""
        if set(map(type, states)) - {self._fold.state}:
            return False
        columns = zip(*states, strict=True)
        for (plain, _), values in zip(self._fold.usual_state, columns, strict=False):
            if set(map(type, values)) - {plain}:
                return False
            if plain is int and not MIN_INT <= min(values) <= max(values) <= MAX_INT:
                return False
            if plain is str and not all(map(str.isascii, values)):
                return False
        known = zip(states, changed_at_us, repeat(NEVER_US), strict=False)
        self._known.update(zip(keys, known, strict=True))
        return True

    def due(self, until_us: int) -> list[Key]:
        """Return the keys whose timeout, timer or state's end is before `until_us`."""
        if not self._fold.wakes:
            return []
        if self._stored is not None:
            is_due = pc.less(wake_us(self._fold, self._stored), until_us)
            self.fetch(self._stored["key"].filter(is_due))
        return [key for key in self._known if self.wakes_at(key) < until_us]

    def wakes_at(self, key: Key) -> int:
        """Return the instant at which `key` times out, has a timer or ends; NEVER_US for never."""
        state, changed_at_us, timeout_us = self.known(key)
        if self._fold.timers:
            timers_us = self._extra[TIMERS].get(key) or ()
            timeout_us = min(timeout_us, *(at for at in timers_us if at is not None), NEVER_US)
        return min(timeout_us, end_us(self._fold.ttl_us, state, changed_at_us))

    def first_timeout_us(self) -> int:
        """Return the first instant at which time alone changes something; NEVER_US for never."""
        first_us = pc.min(wake_us(self._fold, self.rows())).as_py()
        first_us = NEVER_US if first_us is None else int(first_us)
        if self._fold.seen is not None:
            first_us = min(first_us, first_expiry_us(self._fold.seen, self.rows()))
        return first_us

    def __iter__(self) -> Iterator[KeyState]:
        rows = self.rows()
        keys = decode(self._key, rows["key"], "key")
        columns = [decode(c.shape, rows[c.name], c.name) for c in self._fold.extra]
        extra = zip(*columns, strict=True) if columns else repeat(())
        for key, each, values in zip(keys, self._objects(rows), extra, strict=False):
            yield KeyState(key, *each, values)

    def forget_seen(self, until_us: int) -> None:
        """Forget values that no event from `until_us` on can repeat, and keys with nothing else."""
        if self._fold.seen is not None:
            rows = self.rows()
            self._stored = without_expired(self._fold, self._fold.seen, rows, until_us)
            self.keys_changed |= self._stored.num_rows < rows.num_rows

    def rows(self) -> pa.Table:
        """Return all states as rows of `state_schema(fold)`. A key keeps its place while no key goes."""
        stored = self._stored_rows()
        if self._known:
            self._stored = stored = self._with_known(stored)
            self._known, self._positions = {}, []
            for values in self._extra.values():
                values.clear()
        return stored

    def _stored_rows(self) -> pa.Table:
        if self._stored is None:
            self._stored = state_schema(self._fold).empty_table()
        return self._stored

    def _fetched(self, key: Key) -> Known:
        if self._stored is None:
            self._positions.append(-1)
            self._known[key] = ABSENT
        else:
            self.fetch(encode(self._key, [key]))
        return self._known[key]

    def _fetch_extra(self, rows: pa.Table) -> None:
        keys = decode(self._key, rows["key"], "key")
        for column in self._fold.extra:
            values = decode(column.shape, rows[column.name], column.name)
            self._extra[column.name].update(zip(keys, values, strict=True))

    def _objects(self, rows: pa.Table) -> Iterable[Known]:
        return zip(
            decode(self._fold.state_shape, rows["state"], "state"),
            python_values(pc.fill_null(rows["changed_at_us"], NO_STATE_US)),
            python_values(pc.fill_null(rows["timeout_at_us"], NEVER_US)),
            strict=True,
        )

    def _with_known(self, before: pa.Table) -> pa.Table:
        """Return the stored rows with the known states in their places: one `take` per column."""
        positions = np.array(self._positions)
        is_retained = np.array(self._is_retained())
        was_stored = positions >= 0
        stored = before.num_rows
        source = np.arange(stored)
        source[positions[was_stored & is_retained]] = stored + np.flatnonzero(
            was_stored[is_retained]
        )
        source = np.delete(source, positions[was_stored & ~is_retained])
        source = np.append(source, stored + np.flatnonzero(~was_stored[is_retained]))
        rows = pa.concat_tables([before, self._known_rows(before.schema)])
        if bool((was_stored != is_retained).any()):
            self.keys_changed = True
            return rows.combine_chunks().take(source)
        values = rows.drop_columns(["key"]).combine_chunks().take(source)
        return values.add_column(0, "key", before["key"])

    def _is_retained(self) -> list[bool]:
        """Return for each known key whether it has anything to store."""
        if not self._extra:
            return [known is not ABSENT for known in self._known.values()]
        columns = self._extra.values()
        return [
            known != ABSENT or any(values.get(key) is not None for values in columns)
            for key, known in self._known.items()
        ]

    def _known_rows(self, schema: pa.Schema) -> pa.Table:
        retained = dict(compress(self._known.items(), self._is_retained()))
        if not retained:
            return schema.empty_table()
        states, changed_at_us, timeouts_us = zip(*retained.values(), strict=True)
        absent = np.array([state is None for state in states])
        never = np.array(timeouts_us) == NEVER_US
        arrays = [
            encode(self._key, list(retained)),
            encode(self._fold.state_shape, states),
            pa.array(changed_at_us, pa.int64(), mask=absent),
            pa.array(timeouts_us, pa.int64(), mask=never | (not self._fold.times_out)),
        ]
        for column in self._fold.extra:
            arrays.append(encode(column.shape, [*map(self._extra[column.name].get, retained)]))
        return pa.table(arrays, schema=schema)


class MigrationError(RuntimeError):
    """`migrate_state` failed for a key, or made of its state what the schema does not take."""


def migrated(batch: pa.RecordBatch, fold: KeyedFold, migrate: MigrateState) -> pa.Table:
    """Return a savepoint's rows, whose states are of any schema, as rows of `state_schema(fold)`.

    Timers stay by their names, and seen values where `by` is the same. MigrationError when `migrate` fails.
    """
    schema = state_schema(fold)
    keys = batch["key"].cast(schema.field("key").type)
    each = zip(decode(fold.keys.shape, keys, "key"), _old_states(batch["state"], fold), strict=True)
    new = [None if old is None else _new_state(key, old, fold, migrate) for key, old in each]
    never = pa.nulls(batch.num_rows, pa.int64())
    timeouts_us = batch["timeout_at_us"] if fold.times_out else never
    columns = [keys, encode(fold.state_shape, new), batch["changed_at_us"], timeouts_us]
    extra = [_retained(batch, schema.field(column.name)) for column in fold.extra]
    return with_something(fold, pa.table([*columns, *extra], schema=schema))


def _old_states(states: pa.StructArray, fold: KeyedFold) -> list[dict[str, Any] | None]:
    """Return plain values by name, but microseconds where the fold's own field is an Instant."""
    shapes = ((column.name, column.shape) for column in fold.state_columns)
    counts = {name for name, shape in shapes if isinstance(shape, Scalar) and shape.is_instant}
    columns = [
        column.cast(pa.int64())
        if field.name in counts and pa.types.is_timestamp(field.type)
        else column
        for field, column in zip(states.type, states.flatten(), strict=True)
    ]
    names = [field.name for field in states.type]
    plain = pa.StructArray.from_arrays(columns, names, mask=states.is_null())
    return list(map(_with_tuples, plain.to_pylist(maps_as_pydicts="lossy")))


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(of) for key, of in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _new_state(key: Key, old: dict[str, Any], fold: KeyedFold, migrate: MigrateState) -> Any:
    try:
        with localcontext(ARITHMETIC):
            new = migrate(old)
        if not isinstance(new, fold.state):
            raise TypeError(f"it returned {new!r}, and not a {fold.state.__name__}")
        return fold.stored(new)
    except Exception as error:  # anything: it is the user's code, and only the key is ours to add
        said = f"migrate_state, for key {key!r}: {type(error).__name__}: {error}"
        raise MigrationError(said) from error


def _retained(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return the stored column of one of the fold's `extra`, nulls where it has another type now."""
    nothing = pa.nulls(batch.num_rows, field.type)
    stored = batch[field.name] if field.name in batch.schema.names else nothing
    if field.name == TIMERS:
        stored = _by_name(stored, field.type)
    return stored if stored.type == field.type else nothing


def _by_name(timers: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    """Return the timers that are declared now, as far as they were stored before."""
    before = dict(zip((field.name for field in timers.type), timers.flatten(), strict=True))
    columns = [before.get(field.name, pa.nulls(len(timers), field.type)) for field in wanted]
    is_none_set = reduce(pc.and_, [pc.is_null(column) for column in columns])
    return pa.StructArray.from_arrays(columns, fields=[*wanted], mask=is_none_set)
