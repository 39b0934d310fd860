"""GroupState: Spark's names, rules and errors, and how long a timeout lasts."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.streaming.state import GroupState as SparksGroupState

from include.fold.admission import LAST_INSTANT_US, NEVER_US
from include.fold.group_state import GroupState

CLOCK_US = 1_750_000_000_123_456  # a call in 2025, not at a whole millisecond
CLOCK_MS = 1_750_000_000_123
DAY_US = 86_400_000_000
NOW = datetime.fromtimestamp(CLOCK_US // 1_000_000, UTC) + timedelta(microseconds=123_456)
EAST = timezone(timedelta(hours=2))
NONE, EVENT, PROCESSING = "NoTimeout", "EventTimeTimeout", "ProcessingTimeTimeout"


def a_state(timeout: str = NONE, value=None, clock_us: int = CLOCK_US, timers=()) -> GroupState:
    state: GroupState = GroupState(timeout, None, timers)
    state.begin_key(value, clock_us)
    return state


def test_all_of_sparks_names_are_there():
    python_only = {"oldTimeoutTimestamp", "json", "NO_TIMESTAMP"}
    sparks = {name for name in vars(SparksGroupState) if not name.startswith("_")} - python_only
    assert sparks - set(dir(GroupState)) == set()


@pytest.mark.parametrize("clock_us", [CLOCK_US, 0, 999, 1_000, -1])
def test_the_clocks_are_the_calls_time_in_whole_milliseconds(clock_us):
    state = a_state(clock_us=clock_us)
    ms = clock_us // 1_000
    assert state.getCurrentWatermarkMs() == state.getCurrentProcessingTimeMs() == ms
    assert ms * 1_000 <= clock_us < (ms + 1) * 1_000


@pytest.mark.parametrize(
    ("duration", "micros"),
    [
        (1, 1_000),
        (300_000, 300_000_000),
        ("5 minutes", 300_000_000),
        ("5 MINUTES", 300_000_000),
        ("interval 5 minutes", 300_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1 hour -1 minute", 3_540_000_000),
        ("1 millisecond 1 microsecond", 1_001),
        ("2 weeks 1 day", 15 * DAY_US),
        ("1 month", 31 * DAY_US),
        ("1 year", 372 * DAY_US),
        (timedelta(microseconds=1), 1),
        (timedelta(minutes=5), 300_000_000),
    ],
)
def test_a_duration_counts_from_the_call(duration, micros):
    in_processing, in_event_time = a_state(PROCESSING), a_state(EVENT)
    in_processing.setTimeoutDuration(duration)
    assert in_processing.timeout_at_us == CLOCK_US + micros
    in_event_time.setTimeoutTimestamp(NOW, duration)
    assert in_event_time.timeout_at_us == CLOCK_US + micros


@pytest.mark.parametrize(
    ("arguments", "named", "at_us"),
    [
        ((CLOCK_MS + 1,), {}, (CLOCK_MS + 1) * 1_000),
        ((NOW + timedelta(microseconds=1),), {}, CLOCK_US + 1),
        ((NOW.astimezone(EAST) + timedelta(seconds=1),), {}, CLOCK_US + 1_000_000),
        ((), {"timestampUs": CLOCK_US + 1}, CLOCK_US + 1),
        ((), {"timestampUs": CLOCK_US, "additionalDuration": "1 microsecond"}, CLOCK_US + 1),
        ((CLOCK_MS, 1), {}, (CLOCK_MS + 1) * 1_000),
        ((CLOCK_MS, "1 second"), {}, CLOCK_MS * 1_000 + 1_000_000),
        ((CLOCK_MS,), {"additionalDuration": timedelta(days=1)}, CLOCK_MS * 1_000 + DAY_US),
        ((datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),), {}, LAST_INSTANT_US),
    ],
)
def test_a_timestamp_is_milliseconds_a_datetime_or_microseconds(arguments, named, at_us):
    state = a_state(EVENT)
    state.setTimeoutTimestamp(*arguments, **named)
    assert state.timeout_at_us == at_us


def span(wrong):
    return (
        (PROCESSING, lambda s: s.setTimeoutDuration(wrong)),
        (EVENT, lambda s: s.setTimeoutTimestamp(CLOCK_MS + 5, wrong)),
    )


def micros(wrong):
    """`5 * 60 * 1e6` is soon written: as a float it must not get into the state."""
    return (
        (PROCESSING, lambda s: s.setTimeoutDuration(durationUs=wrong)),
        (EVENT, lambda s: s.setTimeoutTimestamp(timestampUs=s.clock_us + wrong)),
    )


NO_SPANS = ("", " ", "5 minutes 3", "soon", "5", "minutes", "5 fortnights", "1.5 seconds")
NO_SPANS += ("5 minutes ago", -1, timedelta(microseconds=-1))
REFUSED = [
    *[(*use, ValueError) for wrong in NO_SPANS for use in span(wrong)],
    *[(*use, TypeError) for wrong in (1.5, True, b"5 minutes", [5]) for use in span(wrong)],
    *[(*use, TypeError) for wrong in (1.5, 300 * 1e6) for use in micros(wrong)],
    *[
        (PROCESSING, use, ValueError)
        for use in (
            lambda s: s.setTimeoutDuration("-5 seconds"),
            lambda s: s.setTimeoutDuration(timedelta(0)),
            lambda s: s.setTimeoutDuration(durationUs=-1),
            lambda s: s.setTimeoutDuration(10**15),
        )
    ],
    *[
        (EVENT, use, ValueError)
        for use in (
            lambda s: s.setTimeoutTimestamp(CLOCK_MS),
            lambda s: s.setTimeoutTimestamp(timestampUs=CLOCK_US),
            lambda s: s.setTimeoutTimestamp(timestampUs=LAST_INSTANT_US + 1),
            lambda s: s.setTimeoutTimestamp(NOW.replace(tzinfo=None)),
        )
    ],
    (EVENT, lambda s: s.setTimeoutTimestamp(1.5, timestampUs=CLOCK_US + 5), TypeError),
]


@pytest.mark.parametrize(("timeout", "use", "error"), REFUSED)
def test_what_the_rules_do_not_allow_is_refused_and_changes_nothing(timeout, use, error):
    state = a_state(timeout)
    with pytest.raises(error):
        use(state)
    assert (state.timeout_at_us, state.getOption) == (NEVER_US, None)


SPARKS_RULES = {
    "no state": (NONE, lambda s: s.get),
    "update(None)": (NONE, lambda s: s.update(None)),
    "duration without timeout": (NONE, lambda s: s.setTimeoutDuration(5)),
    "duration in event time": (EVENT, lambda s: s.setTimeoutDuration(5)),
    "duration of 0": (PROCESSING, lambda s: s.setTimeoutDuration(0)),
    "duration below 0": (PROCESSING, lambda s: s.setTimeoutDuration(-1)),
    "timestamp without timeout": (NONE, lambda s: s.setTimeoutTimestamp(CLOCK_MS + 5)),
    "timestamp in processing time": (PROCESSING, lambda s: s.setTimeoutTimestamp(CLOCK_MS + 5)),
    "timestamp before the clock": (EVENT, lambda s: s.setTimeoutTimestamp(CLOCK_MS - 1)),
}


@pytest.mark.parametrize("rule", SPARKS_RULES)
def test_an_error_is_the_one_that_pyspark_raises(rule):
    timeout, use = SPARKS_RULES[rule]
    clocks = {"batchProcessingTimeMs": CLOCK_MS, "eventTimeWatermarkMs": CLOCK_MS}
    nothing = {"hasTimedOut": False, "defined": False, "updated": False, "removed": False}
    others = {"watermarkPresent": True, "timeoutTimestamp": -1, "timeoutConf": timeout}
    unused = {"optionalValue": None, "keyAsUnsafe": b"", "valueSchema": None}
    with pytest.raises((ValueError, TypeError, RuntimeError)) as sparks:
        use(SparksGroupState(**clocks, **nothing, **others, **unused))
    state = a_state(timeout)
    (builtin,) = {ValueError, TypeError, RuntimeError} & set(type(sparks.value).__mro__)
    with pytest.raises(builtin) as ours:
        use(state)
    assert (state.timeout_at_us, state.getOption) == (NEVER_US, None)
    assert str(ours.value).startswith(f"[{sparks.value.getCondition()}]")


def test_a_timer_is_set_to_an_instant_as_a_timeout_is():
    state = a_state(PROCESSING, timers=("reminder", "expiry"))
    state.setTimer("expiry", CLOCK_MS + 1, "2 milliseconds")
    state.setTimer("reminder", NOW + timedelta(seconds=1))
    assert state.timers == {"expiry": (CLOCK_MS + 3) * 1_000, "reminder": CLOCK_US + 1_000_000}
    for _ in range(2):  # the second time nothing happens
        state.deleteTimer("expiry")
    assert (state.timers, state.timer) == ({"reminder": CLOCK_US + 1_000_000}, None)
    with pytest.raises(ValueError):
        state.setTimer("expiry", CLOCK_MS)


@pytest.mark.parametrize(("timers", "error"), [(("expiry",), ValueError), ((), RuntimeError)])
def test_a_timer_that_is_not_declared_is_refused(timers, error):
    state = a_state(EVENT, timers=timers)
    for use in (lambda: state.setTimer("x", CLOCK_MS + 5), lambda: state.deleteTimer("x")):
        with pytest.raises(error):
            use()
    assert state.timers == {}
