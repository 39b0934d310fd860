"""GroupState, through which a state function reads and sets its key's state, timeout and timers.

Spark's interface (`applyInPandasWithState`, `flatMapGroupsWithState`) in plain Python, with the same
names, rules and errors. One difference is the point of the fold: its clock is the time of the call's
event or timeout, never the wall's or the batch's: no result depends on when the function is run.
"""

from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from keyword import iskeyword
from operator import length_hint
from typing import Any, Generic, TypeVar

from include.fold.admission import (
    LAST_INSTANT_US,
    MICROSECOND,
    NEVER_US,
    US_PER_MS,
    duration_us,
    micros_of,
)
from include.fold.records import Column, Scalar, nested, wrong

S = TypeVar("S")


class GroupStateTimeout:
    """The ways in which the states of a stream can time out."""

    NoTimeout = "NoTimeout"
    ProcessingTimeTimeout = "ProcessingTimeTimeout"
    EventTimeTimeout = "EventTimeTimeout"


class GroupState(Generic[S]):
    """The state of one key during one call of the state function: do not keep it between calls.

    A timeout holds until the next call for the key, whatever its reason: a function that wants one sets
    it in each call. What is against the rules raises ValueError, TypeError or RuntimeError as in Spark;
    the message begins with Spark's name for the condition.
    """

    __slots__ = (
        *("_names", "_stored", "_timed_out", "_timeout", "_timers", "_value"),
        *("clock_us", "timeout_at_us", "timer"),
    )

    def __init__(
        self,
        timeout: str = GroupStateTimeout.NoTimeout,
        stored: Callable[[S], S] | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        """`stored` returns a state as the store would give it back; `names` are those of timers."""
        self._timeout = timeout
        self._stored = stored
        self._names = names
        self._timers: dict[str, int] = {}
        self.begin_key(None, 0)
        self.begin_call(0)

    def begin_key(self, value: S | None, clock_us: int, timeout_at_us: int = NEVER_US) -> None:
        """For the fold: set a key as its last call left it, at `clock_us`."""
        self._value = value
        self.clock_us = clock_us
        self.timeout_at_us = timeout_at_us

    def begin_timers(self, stored: Sequence[int | None] | None) -> None:
        """For the fold: set the timers of the key, as they are stored; None for none."""
        found = zip(self._names, stored or (), strict=False)
        self._timers = {name: at_us for name, at_us in found if at_us is not None}

    def begin_call(self, clock_us: int, timed_out: bool = False, timer: str | None = None) -> None:
        """For the fold: begin the key's next call, at `clock_us`; its timeout is over."""
        self.clock_us = clock_us
        self._timed_out = timed_out
        self.timer = timer  # whose instant has come, if the call is made for one
        self.timeout_at_us = NEVER_US

    def show(self, value: S | None) -> None:
        """For the fold: replace the state that the call has set by its stored form."""
        self._value = value

    def stored_timers(self) -> Any:
        """For the fold: return the timers as they are stored; None for none."""
        return _record(self._names)(*map(self._timers.get, self._names)) if self._timers else None

    def due_us(self) -> int:
        """For the fold: return when the timeout or the first timer comes; NEVER_US for neither."""
        return min(self.timeout_at_us, *self._timers.values(), NEVER_US)

    def take_timer(self, at_us: int) -> str | None:
        """For the fold: remove and return the first timer that comes at `at_us`; None for the timeout."""
        if self.timeout_at_us == at_us:
            return None
        name = min(name for name, timer_us in self._timers.items() if timer_us == at_us)
        del self._timers[name]
        return name

    @property
    def exists(self) -> bool:
        """True if the key has a state."""
        return self._value is not None

    @property
    def get(self) -> S:
        """The state; ValueError when there is none."""
        if self._value is None:
            raise ValueError("[STATE_NOT_EXISTS] the key has no state: ask `exists`")
        return self._value

    @property
    def getOption(self) -> S | None:
        """The state, or None when there is none."""
        return self._value

    @property
    def hasTimedOut(self) -> bool:
        """True if this call was made because the key's timeout has come; it has no events then."""
        return self._timed_out

    def update(self, newValue: S) -> None:
        """Set the state; TypeError for None and for what a field of it cannot hold."""
        if newValue is None:
            raise TypeError("[CANNOT_BE_NONE] update(None): a state cannot be None; use remove()")
        self._value = newValue if self._stored is None else self._stored(newValue)

    def remove(self) -> None:
        """Remove the state."""
        self._value = None

    def setTimeoutDuration(
        self, durationMs: int | str | timedelta = 0, *, durationUs: int = 0
    ) -> None:
        """Time out this long after the call's time. Only with ProcessingTimeTimeout.

        Milliseconds, words such as "5 minutes", or a timedelta; `durationUs` is microseconds.
        """
        if self._timeout != GroupStateTimeout.ProcessingTimeTimeout:
            raise self._refusal("set timeout duration", "ProcessingTimeTimeout")
        span_us = duration_us(durationMs) + _whole(durationUs, "durationUs")
        if span_us <= 0:
            raise ValueError(f"[VALUE_NOT_POSITIVE] timeout duration {span_us} us")
        self.timeout_at_us = _after(self.clock_us, self.clock_us + span_us)

    def setTimeoutTimestamp(
        self,
        timestampMs: int | datetime = 0,
        additionalDuration: int | str | timedelta = 0,
        *,
        timestampUs: int = 0,
    ) -> None:
        """Time out at an instant of event time. Only with EventTimeTimeout.

        Milliseconds since 1970 or a datetime with a zone, and a span to add to it (as in
        `setTimeoutDuration`); `timestampUs` is microseconds since 1970.
        """
        if self._timeout != GroupStateTimeout.EventTimeTimeout:
            raise self._refusal("set timeout timestamp", "EventTimeTimeout")
        self.timeout_at_us = _instant_after(
            self.clock_us, timestampMs, additionalDuration, timestampUs
        )

    @property
    def timers(self) -> dict[str, int]:
        """The instants of the timers that are set, in microseconds since 1970."""
        return dict(self._timers)

    def setTimer(
        self,
        name: str,
        timestampMs: int | datetime = 0,
        additionalDuration: int | str | timedelta = 0,
        *,
        timestampUs: int = 0,
    ) -> None:
        """Call the function at an instant (as in `setTimeoutTimestamp`), whatever comes before.

        Only for names of the fold's `timers=`.
        """
        self._check_name(name)
        at_us = _instant_after(self.clock_us, timestampMs, additionalDuration, timestampUs)
        self._timers[name] = at_us

    def deleteTimer(self, name: str) -> None:
        """Delete a timer; nothing happens if it is not set."""
        self._check_name(name)
        self._timers.pop(name, None)

    def _check_name(self, name: str) -> None:
        if not self._names:
            raise RuntimeError(
                f"[CANNOT_WITHOUT] timer {name!r}: the fold declares no timers=(...)"
            )
        if name not in self._names:
            raise ValueError(f"[UNKNOWN_TIMER] {name!r} is none of {', '.join(self._names)}")

    def getCurrentWatermarkMs(self) -> int:
        """Return the fold's clock: the time of the call's event or timeout, in milliseconds."""
        return self.clock_us // US_PER_MS

    def getCurrentProcessingTimeMs(self) -> int:
        """Return the same clock: processing time is recorded in bronze, not observed."""
        return self.clock_us // US_PER_MS

    def _refusal(self, what: str, needed: str) -> RuntimeError:
        said = f"cannot {what} without timeout={needed}: the stream says {self._timeout}"
        return RuntimeError(f"[CANNOT_WITHOUT] {said}")


class TickingGroupState(GroupState[S]):
    """A key's state during one call with all of its events: the clock is the newest one's.

    It is looked up when the function asks, which few do: to set it with each event costs as much
    as most functions. For states without timeouts, of which the stored form is their own.
    """

    __slots__ = ("_end", "_events", "_start", "_times_us")

    def __init__(self, times_us: Sequence[int]) -> None:
        self._events: Iterator[Any] = iter(())
        self._times_us, self._start, self._end = times_us, 0, 0
        super().__init__()

    def begin_events(self, value: S | None, events: Iterator[Any], start: int, end: int) -> None:
        """For the fold: show `value`; `events` are those with `times_us` from `start` to `end`."""
        self._value, self._events, self._start, self._end = value, events, start, end

    @property
    def clock_us(self) -> int:
        """The time of the newest event that was taken; before any, of the first."""
        taken_last = self._end - length_hint(self._events) - 1
        return self._times_us[max(taken_last, self._start)]

    @clock_us.setter
    def clock_us(self, value: int) -> None:
        """Nothing sets it: it follows the events."""


def _instant_after(
    clock_us: int,
    timestamp_ms: int | datetime,
    additional: int | str | timedelta,
    timestamp_us: int,
) -> int:
    """Return the instant of a timeout or a timer; ValueError unless it is after the call's."""
    at_us = _whole(timestamp_us, "timestampUs")
    if timestamp_ms != 0:
        at_us += _instant_us(timestamp_ms)
    if additional != 0:
        span_us = duration_us(additional)
        if span_us < 0:
            raise ValueError(f"[VALUE_NOT_POSITIVE] additional duration {additional!r} is negative")
        at_us += span_us
    # Here too, for most functions set a timeout with each event, and a call costs as much again.
    return at_us if clock_us < at_us <= LAST_INSTANT_US else _after(clock_us, at_us)


def _after(clock_us: int, at_us: int) -> int:
    if not clock_us < at_us <= LAST_INSTANT_US:
        said = f"{at_us} us is not after the call's time, {clock_us} us, or beyond the year 9999"
        raise ValueError(f"[INVALID_TIMEOUT_TIMESTAMP] {said}")
    return at_us


def _whole(micros: int, name: str) -> int:
    if type(micros) is not int:
        raise TypeError(f"[NOT_EXPECTED_TYPE] {name} = {micros!r}: give whole microseconds")
    return micros


def _instant_us(instant: int | datetime) -> int:
    if type(instant) is int:
        return instant * US_PER_MS
    if not isinstance(instant, datetime):
        said = f"{instant!r}: give whole milliseconds since 1970, or a datetime"
        raise TypeError(f"[NOT_EXPECTED_TYPE] timeout timestamp {said}")
    if instant.tzinfo is None:
        raise ValueError(f"[INVALID_TIMEOUT_TIMESTAMP] {instant.isoformat()} has no zone")
    return micros_of(instant)


TIMERS = "timers"  # the column of a key's timers
MOST_TIMERS = 32


def timers_column(names: tuple[str, ...]) -> Column:
    """Return the column of a key's timers: the instant of each, null for one that is not set."""
    each = [Column(name, Scalar("bigint", True, int)) for name in names]
    return Column(TIMERS, nested(_record(names), each, nullable=True))


def check_timers(names: object) -> None:
    """Raise DefinitionError for what are no names of timers."""
    given = names if isinstance(names, tuple) else ("",)
    are_fields = all(
        isinstance(n, str) and n.isidentifier() and n[0] != "_" and not iskeyword(n) for n in given
    )
    # To Spark names have no case.
    if not are_fields or not len({n.lower() for n in given}) == len(given) <= MOST_TIMERS:
        said = f"must be a tuple of at most {MOST_TIMERS} fields' names, each once, not {names!r}"
        raise wrong("timers", said)


@cache
def _record(names: tuple[str, ...]) -> Any:
    return namedtuple("Timers", names)


TIMEOUTS = {
    "event": GroupStateTimeout.EventTimeTimeout,
    "processing": GroupStateTimeout.ProcessingTimeTimeout,
}


def span_us(name: str, span: timedelta) -> int:
    """Return the microseconds of a span of time; DefinitionError unless it is above 0."""
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise wrong(name, f"must be a timedelta above 0, not {span!r}")
    return span // MICROSECOND


def count_of(name: str, value: int, at_least: int) -> int:
    """Return `value`; DefinitionError unless it is a whole number, `at_least` or more."""
    if type(value) is not int or value < at_least:
        raise wrong(name, f"must be a whole number, {at_least} or more, not {value!r}")
    return value


def timeout_in(time: str) -> str:
    """Return the timeout of a stream whose clock is `event` or `processing` time."""
    if time not in TIMEOUTS:
        raise wrong("time", f"must be 'event' or 'processing', not {time!r}")
    return TIMEOUTS[time]
