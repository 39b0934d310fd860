"""The states of a bucket's keys, kept by column as the state store keeps them.

A batch touches few of a bucket's keys, so only those become State objects: the other
values pass through as they came.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from include.fold.admission import NEVER_US
from include.fold.definition import Key, KeyedFold
from include.fold.records import MAX_INT, MIN_INT, NAMES

# In place of the time of the last change: the key has a timeout, but no state.
NO_STATE_US = -(2**63)


class KeyState(NamedTuple):
    """One key's state (None: only a timeout), the time of its last change, and its timeout."""

    key: Key
    state: Any
    changed_at_us: int
    timeout_at_us: int  # NEVER_US for none


class States:
    """The states of some keys. Reading and replacing one costs the same for any number.

    `timeouts_us` stays empty in a fold whose states cannot time out.
    """

    def __init__(
        self,
        fold: KeyedFold,
        keys: list[Key] | None = None,
        columns: list[list[Any]] | None = None,
        changed_at_us: list[int] | None = None,
        timeouts_us: list[int] | None = None,
    ) -> None:
        self.keys = keys if keys is not None else []
        self.columns = columns if columns is not None else [[] for _ in fold.state_columns]
        self.changed_at_us = changed_at_us if changed_at_us is not None else []
        self.timeouts_us = timeouts_us if timeouts_us is not None else []
        self.keys_changed = False
        self._fold = fold
        self._times_out = fold.times_out
        self._positions = dict(zip(self.keys, range(len(self.keys)), strict=True))
        self._lists: list[list[Any]] = [self.changed_at_us, *self.columns]
        if self._times_out:
            self._lists.append(self.timeouts_us)
        declared = fold.state_columns
        # The usual type of each column is looked at first: this runs for every key of a batch.
        plain = [NAMES.get(column.kind) for column in declared]
        self._slots = list(zip(self.columns, plain, declared, strict=True))
        self._arrays = [
            index
            for index, column in enumerate(fold.state_columns)
            if column.kind.startswith("array")
        ]

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, key: Key) -> Any:
        """The state of `key`, or None."""
        position = self._positions.get(key)
        return None if position is None else self._state_at(position)

    def timeout_of(self, key: Key) -> int:
        """When `key` times out; NEVER_US for never."""
        position = self._positions.get(key)
        return NEVER_US if position is None else self.timeouts_us[position]

    def changed_at_of(self, key: Key) -> int:
        """When the state of `key` last changed; NO_STATE_US when there is none."""
        position = self._positions.get(key)
        return NO_STATE_US if position is None else self.changed_at_us[position]

    def put(self, key: Key, state: Any, changed_at_us: int, timeout_at_us: int = NEVER_US) -> None:
        """Set what is known of `key`; with neither state nor timeout it is forgotten.

        TypeError for a value that its column cannot hold.
        """
        if state is None:
            if timeout_at_us == NEVER_US:
                self.remove(key)
                return
            changed_at_us = NO_STATE_US
        position = self._positions.get(key)
        if position is None:
            position = self._append(key)
        self.changed_at_us[position] = changed_at_us
        if self._times_out:
            self.timeouts_us[position] = timeout_at_us
        if state is None:
            for values in self.columns:
                values[position] = None
            return
        for (values, plain, column), value in zip(self._slots, state, strict=True):
            if type(value) is not plain or (plain is int and not MIN_INT <= value <= MAX_INT):  # type: ignore[operator]
                column.check(value)
            values[position] = value

    def _append(self, key: Key) -> int:
        position = self._positions[key] = len(self.keys)
        self.keys_changed = True
        self.keys.append(key)
        for values in self._lists:
            values.append(None)
        return position

    def remove(self, key: Key) -> None:
        """Forget `key`: the last key takes its place. Nothing happens to an unknown key."""
        position = self._positions.pop(key, None)
        if position is None:
            return
        self.keys_changed = True
        for values in (self.keys, *self._lists):
            last = values.pop()
            if position < len(values):
                values[position] = last
        if position < len(self.keys):
            self._positions[self.keys[position]] = position

    def due(self, until_us: int) -> list[Key]:
        """The keys whose timeout is before `until_us`."""
        timed = zip(self.keys, self.timeouts_us, strict=False)
        return [key for key, timeout_us in timed if timeout_us < until_us]

    def first_timeout_us(self) -> int:
        """The earliest timeout; NEVER_US for none."""
        return min(self.timeouts_us, default=NEVER_US)

    def kept_without_timeout(self) -> int:
        """How many states nothing will ever wake or remove but a new event; 0 without timeouts."""
        return self.timeouts_us.count(NEVER_US)

    def __iter__(self) -> Iterator[KeyState]:
        for position, key in enumerate(self.keys):
            timeout_us = self.timeouts_us[position] if self._times_out else NEVER_US
            changed_us = self.changed_at_us[position]
            yield KeyState(key, self._state_at(position), changed_us, timeout_us)

    def _state_at(self, position: int) -> Any:
        if self._times_out and self.changed_at_us[position] == NO_STATE_US:
            return None
        values = [column[position] for column in self.columns]
        for index in self._arrays:  # the store hands arrays back as lists
            if values[index] is not None:
                values[index] = tuple(values[index])
        return self._fold.state(*values)
