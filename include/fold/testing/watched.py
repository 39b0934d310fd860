"""A state function under watch: what it does that no comparison of results would show.

Such as asking the wall clock for the date: two runs on one day give the same.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from types import FrameType
from typing import Any, NamedTuple

from include.fold.admission import NEVER_US
from include.fold.definition import Key, StateFunction
from include.fold.group_state import GroupState

OUTSIDE = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "localtime"},
    "posix": {"urandom", "getpid"},
    "nt": {"urandom", "getpid"},
}
NOW = {"now", "utcnow", "today"}
# A line of a log has a time. Hypothesis measures the garbage collection, wherever that comes.
MAY_ASK = {"logging", "hypothesis"}


class Found(NamedTuple):
    """What is wrong, and what to do."""

    broken: str
    advice: str


MEANT = "If that is meant: check_fold(..., may_keep=True)."


def asks(what: str) -> Found:
    return Found(
        f"asks {what}",
        "The next run gets another answer. Take the time from the events, or from state.clock_us; "
        "what is random, from a random.Random(...) that an event seeds.",
    )


READS_TWICE = Found(
    "reads its events twice",
    "An iterator is empty the second time. Read them in one loop, or list them first: events = "
    "list(events).",
)
LOSES_TIMEOUT = Found(
    "loses a timeout",
    "Each call clears the timeout of its key. This one leaves a state without, so that it stays "
    f"for ever if no event comes: set the timeout again in each call. {MEANT}",
)
KEEPS_STATE = Found(
    "leaves a state when its timeout has come",
    "It is as it was, and has no timeout any more, so it stays for ever if no event comes: "
    f"state.remove() when state.hasTimedOut, or set a timeout again. {MEANT}",
)


class Watched:
    """Does what `function` does. `found` says what is wrong with how it does it."""

    def __init__(self, function: StateFunction, may_keep: bool) -> None:
        self.function = getattr(function, "function", function)  # its name is in messages
        self.found: list[Found] = []
        self._call = function
        self._may_keep = may_keep
        self._timeouts: dict[Key, int] = {}

    def __call__(self, key: Key, events: Iterator[Any], state: GroupState[Any]) -> Iterator[Any]:
        before = state.getOption
        with self._no_questions():
            outputs = iter(self._call(key, _Once(events, self.found), state))
        while True:
            # Not at one go: what it yields is looked at while it reads on.
            with self._no_questions():
                output = next(outputs, outputs)
            if output is outputs:
                break
            yield output
        if not self._may_keep:
            self._see_timeout(key, before, state)

    def _see_timeout(self, key: Key, before: Any, state: GroupState[Any]) -> None:
        had_one = self._timeouts.get(key, NEVER_US) != NEVER_US
        self._timeouts[key] = state.timeout_at_us
        if not state.exists or state.timeout_at_us != NEVER_US or state.timers:
            return
        if state.hasTimedOut and state.getOption == before:
            self.found.append(KEEPS_STATE)
        elif had_one and not state.hasTimedOut:
            self.found.append(LOSES_TIMEOUT)

    @contextmanager
    def _no_questions(self) -> Iterator[None]:
        profiler = sys.getprofile()
        sys.setprofile(self._see_call)
        try:
            yield
        finally:
            sys.setprofile(profiler)

    def _see_call(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not _asks_outside(called):
            return
        if not any(name.partition(".")[0] in MAY_ASK for name in _modules_of(frame)):
            self.found.append(asks(_name(called)))


def _modules_of(frame: FrameType | None) -> Iterator[str]:
    """Of who asks, and of all who called it, up to here: a log's handler may be of any module."""
    while frame is not None and (name := frame.f_globals.get("__name__", "")) != __name__:
        yield name
        frame = frame.f_back


def _asks_outside(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, date):
        return called.__name__ in NOW
    if owner is random._inst:
        return True
    return called.__name__ in OUTSIDE.get(called.__module__ or "", ())


def _name(called: Any) -> str:
    if getattr(called, "__self__", None) is random._inst:
        return "the module random"
    owner = getattr(called, "__self__", None)
    return f"{owner.__name__ if owner is not None else called.__module__}.{called.__name__}()"


class _Once:
    """Events that are to be read once. A second loop begins with a second `iter`."""

    def __init__(self, events: Iterator[Any], found: list[Found]) -> None:
        self._events = events
        self._found = found
        self._given = self._is_read = False

    def __iter__(self) -> "_Once":
        if self._given and self._is_read:
            self._found.append(READS_TWICE)
        return self

    def __next__(self) -> Any:
        try:
            event = next(self._events)
        except StopIteration:
            self._is_read = True
            raise
        self._given = True
        return event
