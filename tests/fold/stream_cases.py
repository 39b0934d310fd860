"""The streams that we ship, with small settings: how their events arrive, and what each
docstring says of all events at once. Each in a few lines, without looking at its function."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.streams import (
    device_signals,
    service_health,
    session_streaks,
    streak_alerts,
    threshold_alerts,
    user_counts,
    user_sessions,
)
from include.streams.device_signals import Counted, Signal
from include.streams.service_health import Health, LogLine
from include.streams.session_streaks import OpenStreak, Session
from include.streams.streak_alerts import Longest, Streak
from include.streams.threshold_alerts import Recent
from include.streams.user_counts import Total
from include.streams.user_sessions import OpenSession
from tests.bronze import StampedRow
from tests.fold.arrivals import KEYS, happenings

SPANS_US = st.sampled_from([1, 999, 1_000, 5_000, 5_001, 12_000])
# Times by key, in order, and the end of what is complete -> how often each row at an instant.
Says = Callable[[dict[Any, list[int]], int], Iterator[tuple[tuple[Any, ...], int]]]


class Case(NamedTuple):
    """A stream with small settings, and what it must emit."""

    fold: KeyedFold
    says: Says
    counts: Callable[[Any], bool] = lambda event: True


def rising_counts(times: dict[Any, list[int]], end_us: int) -> Iterator[tuple[Any, int]]:
    for key, own in times.items():
        yield from (((key, number), at_us) for number, at_us in enumerate(own, 1))


def sessions(gap_us: int) -> Says:
    def closed(times: dict[Any, list[int]], end_us: int) -> Iterator[tuple[Any, int]]:
        for key, own in times.items():
            starts = [n for n in range(len(own)) if n == 0 or own[n] - own[n - 1] >= gap_us]
            for start, end in pairwise([*starts, len(own)]):
                first_us, last_us = own[start], own[end - 1]
                if last_us + gap_us < end_us:
                    yield (key, first_us, last_us, end - start), last_us + gap_us

    return closed


def streaks(within_us: int) -> Says:
    def ended(times: dict[Any, list[int]], end_us: int) -> Iterator[tuple[Any, int]]:
        for key, own in times.items():
            starts = [n for n in range(len(own)) if n == 0 or own[n] - own[n - 1] > within_us]
            for start, end in pairwise([*starts, len(own)]):
                if own[end - 1] + within_us < end_us:
                    yield (key, own[start], end - start), own[end - 1] + within_us

    return ended


def length_of(at_us: int) -> int:
    """The sessions of a streak that ends then."""
    return at_us % 8 + 1


def records(times: dict[Any, list[int]], end_us: int) -> Iterator[tuple[Any, int]]:
    for key, own in times.items():
        for number, at_us in enumerate(own):
            before = max(map(length_of, own[:number]), default=0)
            if length_of(at_us) > before and length_of(at_us) >= streak_alerts.LENGTH:
                yield (key, length_of(at_us), before), at_us


def alerts(span_us: int, limit: int) -> Says:
    def risen(times: dict[Any, list[int]], end_us: int) -> Iterator[tuple[Any, int]]:
        for key, own in times.items():
            for number, at_us in enumerate(own):
                trailing = sum(other_us > at_us - span_us for other_us in own[: number + 1])
                if trailing > limit >= trailing - 1:
                    yield (key, "buy", trailing, at_us - span_us), at_us

    return risen


def health_changes(silence_us: int) -> Says:
    def changed(times: dict[Any, list[int]], end_us: int) -> Iterator[tuple[Any, int]]:
        for key, own in times.items():
            for at_us, next_us in pairwise([*own, None]):
                back = next_us is not None and next_us - at_us > silence_us
                if back or (next_us is None and at_us + silence_us < end_us):
                    yield (key, "stale"), at_us + silence_us
                if back:
                    yield (key, "ok"), next_us

    return changed


def micros(us: int) -> timedelta:
    return timedelta(microseconds=us)


def alert_case(span_us: int, limit: int) -> Case:
    fold = threshold_alerts.define(event_type="buy", span=micros(span_us), limit=limit)
    return Case(fold, alerts(span_us, limit), lambda event: event.event_type == "buy")


def health_cases(time: str) -> st.SearchStrategy[Case]:
    return SPANS_US.map(
        lambda us: Case(
            service_health.define(stale_after=micros(us), time=time), health_changes(us)
        )
    )


NUMBERED = KEYS.map(ord)
USER_EVENTS = happenings(lambda us, key: user_counts.UserEvent(key, us), KEYS)
LINES = happenings(lambda us, key: LogLine(key), KEYS)
# Of initial states: a little before the first instant of TIMES.
BEFORE_US = st.integers(90_000, 99_998)


class Shipped(NamedTuple):
    """A stream, as Hypothesis draws its settings, its events, and a state to begin with."""

    cases: st.SearchStrategy[Case]
    events: st.SearchStrategy[Any]
    states: st.SearchStrategy[Any]


STREAMS = {
    "device_signals": Shipped(
        st.just(Case(device_signals.FOLD, rising_counts)),
        happenings(
            lambda us, device, value: Signal(device, us, value), NUMBERED, st.integers(0, 2)
        ),
        st.builds(Counted, st.integers(1, 9)),
    ),
    "user_counts": Shipped(
        st.just(Case(user_counts.FOLD, rising_counts)),
        USER_EVENTS,
        st.builds(Total, st.integers(1, 9)),
    ),
    "user_sessions": Shipped(
        SPANS_US.map(lambda us: Case(user_sessions.define(gap=micros(us)), sessions(us))),
        USER_EVENTS,
        st.builds(OpenSession, st.just(90_000), BEFORE_US, st.integers(1, 9)),
    ),
    "session_streaks": Shipped(
        SPANS_US.map(lambda us: Case(session_streaks.define(within=micros(us)), streaks(us))),
        happenings(lambda us, key: Session(key, us, us), KEYS),
        st.builds(OpenStreak, st.just(90_000), st.integers(1, 9)),
    ),
    "streak_alerts": Shipped(
        st.just(Case(streak_alerts.STREAM.fold, records)),
        happenings(lambda us, key: Streak(key, us, length_of(us)), KEYS),
        st.builds(Longest, st.integers(1, 9)),
    ),
    "threshold_alerts": Shipped(
        st.builds(alert_case, SPANS_US, st.integers(0, 3)),
        happenings(
            lambda us, user, kind: threshold_alerts.UserEvent(user, us, kind),
            KEYS,
            st.sampled_from(["buy", "buy", "buy", "look"]),
        ),
        st.builds(Recent, st.lists(BEFORE_US, min_size=1, max_size=3).map(sorted).map(tuple)),
    ),
    "service_health in event time": Shipped(
        health_cases("event"), LINES, st.builds(Health, st.booleans())
    ),
    "service_health in processing time": Shipped(
        health_cases("processing"), LINES, st.builds(Health, st.booleans())
    ),
}


def times_of(case: Case, rows: Iterable[StampedRow], end_us: int) -> dict[Any, list[int]]:
    """Return the times of each key's complete events, in order."""
    times = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.time_us):
        if row.time_us < end_us and case.counts(row.event):
            times[case.fold.keys.of(row.event)].append(row.time_us)
    return times


def said_of(case: Case, rows: Iterable[StampedRow], end_us: int) -> Any:
    """The stream's table, by its docstring."""
    said = list(case.says(times_of(case, rows, end_us), end_us))
    if case.fold.output_mode == "update":  # the last row of each key
        return {row[0]: (row, at_us) for row, at_us in said}
    return Counter(said)
