"""Checks of the settings that a stream's `define` takes from its entry."""

from datetime import timedelta

from include.fold.admission import MICROSECOND
from include.fold.group_state import GroupStateTimeout
from include.fold.records import wrong

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
