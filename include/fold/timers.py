"""Named timers of a key, beside its one timeout: what a function sees of them, how they are stored."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cache
from keyword import iskeyword
from typing import Any, TypeVar

from include.fold.admission import NEVER_US
from include.fold.group_state import (
    GroupState,
    GroupStateTimeout,
    GroupStateValueError,
    instant_after,
)
from include.fold.records import Column, DefinitionError, wrong
from include.fold.shapes import Nested, Scalar
from include.fold.sql_types import SqlType, sql_type

S = TypeVar("S")
TIMERS = "timers"  # the column of a key's timers, beside its state
MOST_TIMERS = 32


def timers_column(names: tuple[str, ...]) -> Column:
    """How the timers of a key are stored: when each fires, null for one that is not set."""
    parts = tuple((name, Scalar("bigint", True, int)) for name in names)
    kind = SqlType("struct", tuple(sql_type(part.kind) for _, part in parts), names)
    return Column(TIMERS, str(kind), True, Nested(str(kind), True, _record(names), parts))


def check_timers(names: object) -> None:
    """DefinitionError for what names no timers."""
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise DefinitionError(f"timers={names!r} must be a tuple of names", subject="timers")
    for name in names:
        if not name.isidentifier() or name.startswith("_") or iskeyword(name):
            raise wrong("timers", f"{name!r} must be a name, as that of a field")
    if len({name.lower() for name in names}) < len(names):
        raise DefinitionError(
            f"timers={names!r} has a name twice (to Spark names have no case)", subject="timers"
        )
    if len(names) > MOST_TIMERS:
        raise wrong("timers", f"has {len(names)} names, but a key has {MOST_TIMERS} at most")


@cache
def _record(names: tuple[str, ...]) -> Any:
    return namedtuple("Timers", names)


class TimedGroupState(GroupState[S]):
    """The state and the timers of one key during one call."""

    __slots__ = ("_fired", "_names", "_timer", "_timers")

    def __init__(
        self,
        timeout: str = GroupStateTimeout.NoTimeout,
        stored: Callable[[S], S] | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        super().__init__(timeout, stored)
        self._names = names
        self._timers: dict[str, int] = {}
        self._fired: str | None = None  # the next call is made for it
        self._timer: str | None = None

    def begin_key(self, stored: Sequence[int | None] | None) -> None:
        """For the fold: the timers of a key, as they are stored; None for none."""
        found = zip(self._names, stored or (), strict=False)
        self._timers = {name: at_us for name, at_us in found if at_us is not None}

    def stored_timers(self) -> Any:
        """For the fold: the other way round."""
        return _record(self._names)(*map(self._timers.get, self._names)) if self._timers else None

    @property
    def first_timer_us(self) -> int:
        """For the fold: when the first one fires; NEVER_US for none."""
        return min(self._timers.values(), default=NEVER_US)

    def fire_timer(self) -> None:
        """For the fold: the next call is made for the first one, which is over."""
        self._fired = min(self._timers, key=lambda name: (self._timers[name], name))
        del self._timers[self._fired]

    def begin_call(self, value: S | None, clock_us: int, timed_out: bool = False) -> None:
        self._timer, self._fired = self._fired, None
        super().begin_call(value, clock_us, timed_out and self._timer is None)

    @property
    def timer(self) -> str | None:
        return self._timer

    @property
    def timers(self) -> dict[str, int]:
        return dict(self._timers)

    def setTimer(
        self,
        name: str,
        timestampMs: int | datetime = 0,
        additionalDuration: int | str | timedelta = 0,
        *,
        timestampUs: int = 0,
    ) -> None:
        self._check_name(name)
        at_us = instant_after(self.clock_us, timestampMs, additionalDuration, timestampUs)
        self._timers[name] = at_us

    def deleteTimer(self, name: str) -> None:
        self._check_name(name)
        self._timers.pop(name, None)

    def _check_name(self, name: str) -> None:
        if name not in self._names:
            close = get_close_matches(str(name), self._names, n=1)
            hint = f". Did you mean {close[0]!r}?" if close else ""
            raise GroupStateValueError(
                f"[UNKNOWN_TIMER] {name!r} is none of the fold's timers= "
                f"({', '.join(self._names)}){hint}"
            )
