"""GroupState, which a state function sees of its key's state, with the key's named timers.

Spark's interface (`applyInPandasWithState`, `flatMapGroupsWithState`) in plain Python, with
the same names, rules and errors. One difference is the point of the fold: its clock is the
time of the call (of its event, or of the timeout), never the wall's or the batch's, so that
no result depends on when the function happened to run.
"""

from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from keyword import iskeyword
from operator import length_hint
from typing import Any, Generic, TypeVar

from include.fold.admission import (
    EPOCH,
    LAST_INSTANT_US,
    MICROSECOND,
    NEVER_US,
    US_PER_MS,
    duration_us,
)
from include.fold.records import Column, Scalar, nested, wrong

S = TypeVar("S")


class GroupStateTimeout:
    """How the states of a stream can time out."""

    NoTimeout = "NoTimeout"
    ProcessingTimeTimeout = "ProcessingTimeTimeout"
    EventTimeTimeout = "EventTimeTimeout"


class GroupStateError(Exception):
    """A state function used its GroupState against Spark's rules.

    What is raised is also the built-in error that Spark raises there: ValueError, TypeError
    or RuntimeError. The message begins with Spark's name for the condition.
    """


class GroupStateValueError(GroupStateError, ValueError):
    """A value that the rules do not allow here."""


class GroupStateTypeError(GroupStateError, TypeError):
    """An argument of a type that the method does not take."""


class GroupStateRuntimeError(GroupStateError, RuntimeError):
    """A method that the stream's kind of timeout does not have."""


class GroupState(Generic[S]):
    """The state of one key during one call of the state function.

    One object serves all keys of a bucket in turn: do not keep it between calls.
    A timeout holds until the next call for the key, whatever the reason of that call: a
    function that wants one sets it each time.
    """

    __slots__ = (
        *("_names", "_stored", "_timed_out", "_timeout", "_timer", "_timers", "_value"),
        *("clock_us", "timeout_at_us"),
    )

    def __init__(
        self,
        timeout: str = GroupStateTimeout.NoTimeout,
        stored: Callable[[S], S] | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        """`stored` makes of a state what the store would give back; None: it is the same.
        `names` are those of the fold's timers."""
        self._timeout = timeout
        self._stored = stored
        self._names = names
        self._timers: dict[str, int] = {}
        self.begin_key(None, 0)
        self.begin_call(0)

    def begin_key(self, value: S | None, clock_us: int, timeout_at_us: int = NEVER_US) -> None:
        """For the fold: a key as its last call left it, at `clock_us`."""
        self._value = value
        self.clock_us = clock_us
        self.timeout_at_us = timeout_at_us

    def begin_timers(self, stored: Sequence[int | None] | None) -> None:
        """For the fold: the timers of the key, as they are stored; None for none."""
        found = zip(self._names, stored or (), strict=False)
        self._timers = {name: at_us for name, at_us in found if at_us is not None}

    def begin_call(self, clock_us: int, timed_out: bool = False, timer: str | None = None) -> None:
        """For the fold: the key's next call, at `clock_us`; its timeout is over."""
        self.clock_us = clock_us
        self._timed_out = timed_out
        self._timer = timer
        self.timeout_at_us = NEVER_US

    def show(self, value: S | None) -> None:
        """For the fold: the state that the call has set, as it is stored."""
        self._value = value

    def stored_timers(self) -> Any:
        """For the fold: the timers as they are stored; None for none."""
        return _record(self._names)(*map(self._timers.get, self._names)) if self._timers else None

    def due_us(self) -> int:
        """For the fold: when the timeout or the first timer comes; NEVER_US for neither."""
        return min(self.timeout_at_us, *self._timers.values(), NEVER_US)

    def take_timer(self, at_us: int) -> str | None:
        """For the fold: the timer that comes at `at_us`, which is over by that; of several the first
        by name. None where the timeout comes then, which goes first."""
        if self.timeout_at_us == at_us:
            return None
        name = min(name for name, timer_us in self._timers.items() if timer_us == at_us)
        del self._timers[name]
        return name

    @property
    def exists(self) -> bool:
        """Whether the key has a state."""
        return self._value is not None

    @property
    def get(self) -> S:
        """The state; GroupStateValueError when there is none."""
        if self._value is None:
            raise GroupStateValueError(
                "[STATE_NOT_EXISTS] the key has no state, or it has been removed: ask `exists`"
            )
        return self._value

    @property
    def getOption(self) -> S | None:
        """The state, or None when there is none."""
        return self._value

    @property
    def hasTimedOut(self) -> bool:
        """Whether this call was made because the key's timeout has come; it has no events then."""
        return self._timed_out

    def update(self, newValue: S) -> None:
        """Set the state. GroupStateTypeError for None: `remove` takes it away. TypeError for what
        a field of it cannot hold."""
        if newValue is None:
            raise GroupStateTypeError(
                "[CANNOT_BE_NONE] update(None): a state cannot be None; use remove()"
            )
        self._value = newValue if self._stored is None else self._stored(newValue)

    def remove(self) -> None:
        """Take the state away. Without a timeout, too, the key is forgotten and costs nothing."""
        self._value = None

    def setTimeoutDuration(
        self, durationMs: int | str | timedelta = 0, *, durationUs: int = 0
    ) -> None:
        """Time out this long after the call's time. Only with ProcessingTimeTimeout.

        Milliseconds, words such as "5 minutes", or a timedelta; `durationUs` is microseconds.
        Raises GroupStateRuntimeError with another kind of timeout, GroupStateValueError for a
        span that is not positive.
        """
        if self._timeout != GroupStateTimeout.ProcessingTimeTimeout:
            raise self._refusal("set timeout duration", "ProcessingTimeTimeout")
        span_us = _duration_us(durationMs) + _whole(durationUs, "durationUs")
        if span_us <= 0:
            raise GroupStateValueError(f"[VALUE_NOT_POSITIVE] timeout duration {span_us} us")
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
        `setTimeoutDuration`); `timestampUs` is microseconds since 1970. Raises
        GroupStateRuntimeError with another kind of timeout, GroupStateValueError for an
        instant that is not after the call's time.
        """
        if self._timeout != GroupStateTimeout.EventTimeTimeout:
            raise self._refusal("set timeout timestamp", "EventTimeTimeout")
        self.timeout_at_us = _instant_after(
            self.clock_us, timestampMs, additionalDuration, timestampUs
        )

    @property
    def timer(self) -> str | None:
        """The name of the timer whose instant has come, if this call was made for one."""
        return self._timer

    @property
    def timers(self) -> dict[str, int]:
        """When each of the key's timers fires that are set, in microseconds since 1970."""
        return dict(self._timers)

    def setTimer(
        self,
        name: str,
        timestampMs: int | datetime = 0,
        additionalDuration: int | str | timedelta = 0,
        *,
        timestampUs: int = 0,
    ) -> None:
        """Call the function at an instant of the fold's clock, whatever comes before; one that is
        set is set anew. The instant is given as in `setTimeoutTimestamp`.

        Only for names of the fold's `timers=`: GroupStateValueError for others, and for an instant
        that is not after the call's time; GroupStateRuntimeError in a fold that has none.
        """
        self._check_name(name)
        at_us = _instant_after(self.clock_us, timestampMs, additionalDuration, timestampUs)
        self._timers[name] = at_us

    def deleteTimer(self, name: str) -> None:
        """Take a timer back; nothing happens if it is not set. Raises as `setTimer` does."""
        self._check_name(name)
        self._timers.pop(name, None)

    def _check_name(self, name: str) -> None:
        if not self._names:
            raise GroupStateRuntimeError(
                f"[CANNOT_WITHOUT] cannot use timer {name!r} in a fold that declares none: give it "
                "timers=(...), their names"
            )
        if name not in self._names:
            raise GroupStateValueError(
                f"[UNKNOWN_TIMER] {name!r} is none of the fold's timers= ({', '.join(self._names)})"
            )

    def getCurrentWatermarkMs(self) -> int:
        """The fold's clock: the time of the call's event or timeout, in milliseconds."""
        return self.clock_us // US_PER_MS

    def getCurrentProcessingTimeMs(self) -> int:
        """The same clock: processing time is recorded in bronze, not observed."""
        return self.clock_us // US_PER_MS

    def _refusal(self, what: str, needed: str) -> GroupStateRuntimeError:
        return GroupStateRuntimeError(
            f"[CANNOT_WITHOUT] cannot {what} without timeout={needed}: the stream says "
            f"{self._timeout}"
        )

    def __str__(self) -> str:
        return f"GroupState({self._value if self.exists else '<undefined>'})"


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
        """The time of the event that was taken last; before any, of the first."""
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
    """The instant that is given for a timeout or a timer. GroupStateError unless it is after the
    call's time."""
    at_us = _whole(timestamp_us, "timestampUs")
    if timestamp_ms != 0:
        at_us += _instant_us(timestamp_ms)
    if additional != 0:
        span_us = _duration_us(additional)
        if span_us < 0:
            raise GroupStateValueError(
                f"[VALUE_NOT_POSITIVE] additional duration {additional!r} is negative"
            )
        at_us += span_us
    # Here too, for most functions set a timeout with each event, and a call costs as much again.
    return at_us if clock_us < at_us <= LAST_INSTANT_US else _after(clock_us, at_us)


def _after(clock_us: int, at_us: int) -> int:
    if not clock_us < at_us <= LAST_INSTANT_US:
        raise GroupStateValueError(
            f"[INVALID_TIMEOUT_TIMESTAMP] {at_us} us is not after the call's time, {clock_us} us, or is "
            "beyond the year 9999"
        )
    return at_us


def _whole(micros: int, name: str) -> int:
    if type(micros) is not int:
        raise GroupStateTypeError(
            f"[NOT_EXPECTED_TYPE] {name} = {micros!r} is a {type(micros).__name__}: give whole "
            "microseconds (an int)"
        )
    return micros


def _duration_us(duration: int | str | timedelta) -> int:
    try:
        return duration_us(duration)
    except TypeError as error:
        raise GroupStateTypeError(f"[NOT_EXPECTED_TYPE] {error}") from error
    except ValueError as error:
        raise GroupStateValueError(f"[INVALID_INTERVAL_FORMAT] {error}") from error


def _instant_us(instant: int | datetime) -> int:
    if type(instant) is int:
        return instant * US_PER_MS
    if not isinstance(instant, datetime):
        raise GroupStateTypeError(
            f"[NOT_EXPECTED_TYPE] timeout timestamp {instant!r} is a {type(instant).__name__}: "
            "give whole milliseconds since 1970, or a datetime"
        )
    if instant.tzinfo is None:
        raise GroupStateValueError(f"[INVALID_TIMEOUT_TIMESTAMP] {instant.isoformat()} has no zone")
    return (instant - EPOCH) // MICROSECOND


TIMERS = "timers"  # the column of a key's timers, beside its state
MOST_TIMERS = 32


def timers_column(names: tuple[str, ...]) -> Column:
    """How the timers of a key are stored: when each fires, null for one that is not set."""
    each = [Column(name, Scalar("bigint", True, int)) for name in names]
    return Column(TIMERS, nested(_record(names), each, nullable=True))


def check_timers(names: object) -> None:
    """DefinitionError for what names no timers."""
    is_tuple = isinstance(names, tuple) and len(names) <= MOST_TIMERS
    if not is_tuple or not all(isinstance(name, str) and _may_be_field(name) for name in names):  # type: ignore[attr-defined]
        raise wrong(
            "timers", f"must be a tuple of {MOST_TIMERS} fields' names at most, not {names!r}"
        )
    if len({name.lower() for name in names}) < len(names):  # type: ignore
        raise wrong("timers", f"has a name twice (to Spark names have no case): {names!r}")


def _may_be_field(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and not iskeyword(name)


@cache
def _record(names: tuple[str, ...]) -> Any:
    return namedtuple("Timers", names)


TIMEOUTS = {
    "event": GroupStateTimeout.EventTimeTimeout,
    "processing": GroupStateTimeout.ProcessingTimeTimeout,
}


def span_us(name: str, span: timedelta) -> int:
    """Microseconds of a span of time; DefinitionError unless it is above 0."""
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise wrong(name, f"must be a timedelta above 0, not {span!r}")
    return span // MICROSECOND


def count_of(name: str, value: int, at_least: int) -> int:
    """`value`; DefinitionError unless it is a whole number, `at_least` or more."""
    if type(value) is not int or value < at_least:
        raise wrong(name, f"must be a whole number, {at_least} or more, not {value!r}")
    return value


def timeout_in(time: str) -> str:
    """The timeout of a stream whose clock is `event` or `processing` time."""
    if time not in TIMEOUTS:
        raise wrong("time", f"must be 'event' or 'processing', not {time!r}")
    return TIMEOUTS[time]
