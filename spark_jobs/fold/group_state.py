"""GroupState: what a state function sees of its key's state.

Spark's interface (`applyInPandasWithState`, `flatMapGroupsWithState`) in plain Python, with
the same names, rules and errors. One difference is the point of the fold: its clock is the
event time of the call, never the wall's or the batch's, so that no result depends on when
the function happened to run.
"""

from typing import Generic, TypeVar

S = TypeVar("S")


class GroupStateTimeout:
    """How the states of a stream can time out."""

    NoTimeout = "NoTimeout"
    ProcessingTimeTimeout = "ProcessingTimeTimeout"
    EventTimeTimeout = "EventTimeTimeout"


class GroupStateError(ValueError):
    """A state function used its GroupState against Spark's rules."""


class GroupState(Generic[S]):
    """The state of one key during one call of the state function.

    One object serves all keys of a bucket in turn: do not keep it between calls.
    """

    __slots__ = ("_clock_us", "_timeout", "_value")

    def __init__(self, timeout: str = GroupStateTimeout.NoTimeout) -> None:
        self._timeout = timeout
        self._value: S | None = None
        self._clock_us = 0

    def begin_call(self, value: S | None, clock_us: int) -> None:
        """For the fold: show `value` (None for no state) at the instant `clock_us`."""
        self._value = value
        self._clock_us = clock_us

    @property
    def exists(self) -> bool:
        """Whether the key has a state."""
        return self._value is not None

    @property
    def get(self) -> S:
        """The state; GroupStateError when there is none."""
        if self._value is None:
            raise GroupStateError("the key has no state, or it has been removed: ask `exists`")
        return self._value

    @property
    def getOption(self) -> S | None:
        """The state, or None when there is none."""
        return self._value

    def update(self, newValue: S) -> None:
        """Set the state. It cannot be None: `remove` takes it away."""
        if newValue is None:
            raise GroupStateError("update(None): a state cannot be None; use remove()")
        self._value = newValue

    def remove(self) -> None:
        """Take the state away: the key is forgotten, and costs nothing any more."""
        self._value = None

    @property
    def hasTimedOut(self) -> bool:
        """Whether this call was made because the state timed out."""
        return False

    def setTimeoutDuration(self, durationMs: int | str) -> None:
        """Time out this long after the call. Only with ProcessingTimeTimeout."""
        raise GroupStateError(self._refusal("setTimeoutDuration", "ProcessingTimeTimeout"))

    def setTimeoutTimestamp(self, timestampMs: int) -> None:
        """Time out at an instant of event time. Only with EventTimeTimeout."""
        raise GroupStateError(self._refusal("setTimeoutTimestamp", "EventTimeTimeout"))

    def getCurrentWatermarkMs(self) -> int:
        """The fold's clock: the time of the event that is being folded, in milliseconds."""
        return self._clock_us // 1000

    def getCurrentProcessingTimeMs(self) -> int:
        """The same clock: processing time is recorded in bronze, not observed."""
        return self._clock_us // 1000

    def _refusal(self, method: str, needed: str) -> str:
        return f"{method} needs timeout={needed}, but the stream says {self._timeout}"

    def __str__(self) -> str:
        return f"GroupState({self._value if self.exists else '<undefined>'})"
