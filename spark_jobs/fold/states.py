"""The states of a bucket's keys, kept by column as the state store keeps them.

A batch touches few of a bucket's keys, so only those become State objects: the other
values pass through as they came.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from spark_jobs.fold.definition import Key, KeyedFold
from spark_jobs.fold.records import NAMES


class KeyState(NamedTuple):
    """One key's state, and the event time of its last change."""

    key: Key
    state: Any
    changed_at_us: int


class States:
    """The states of some keys. Reading and replacing one costs the same for any number."""

    def __init__(
        self,
        fold: KeyedFold,
        keys: list[Key] | None = None,
        columns: list[list[Any]] | None = None,
        changed_at_us: list[int] | None = None,
    ) -> None:
        self.keys = keys if keys is not None else []
        self.columns = columns if columns is not None else [[] for _ in fold.state_columns]
        self.changed_at_us = changed_at_us if changed_at_us is not None else []
        self.keys_changed = False
        self._fold = fold
        self._positions = dict(zip(self.keys, range(len(self.keys)), strict=True))
        self._lists: list[list[Any]] = [self.changed_at_us, *self.columns]
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

    def put(self, key: Key, state: Any, changed_at_us: int) -> None:
        """Set the state of `key`. TypeError for a value that its column cannot hold."""
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = len(self.keys)
            self.keys_changed = True
            self.keys.append(key)
            for values in self._lists:
                values.append(None)
        self.changed_at_us[position] = changed_at_us
        for (values, plain, column), value in zip(self._slots, state, strict=True):
            if type(value) is not plain:
                column.check(value)
            values[position] = value

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

    def __iter__(self) -> Iterator[KeyState]:
        for position, key in enumerate(self.keys):
            yield KeyState(key, self._state_at(position), self.changed_at_us[position])

    def _state_at(self, position: int) -> Any:
        values = [column[position] for column in self.columns]
        for index in self._arrays:  # the store hands arrays back as lists
            values[index] = tuple(values[index])
        return self._fold.state(*values)
