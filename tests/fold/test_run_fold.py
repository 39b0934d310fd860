"""`run` calls a fold like a function."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from include.fold.definition import flat_map_groups_with_state
from include.fold.group_state import GroupState
from include.fold.testing.cases import Happened, run
from include.streams import service_health
from include.streams.device_signals import FOLD, Counted, Signal
from include.streams.service_health import HealthChange, LogLine
from include.streams.user_sessions import OpenSession, UserEvent, UserSession, define

SESSIONS = define(gap=timedelta(microseconds=100))
IN_PROCESSING_TIME = service_health.define(stale_after=timedelta(seconds=1), time="processing")


def line(time_us: int) -> Happened:
    return Happened(LogLine("api"), time_us)


def test_the_clock_may_be_a_datetime():
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    ran = run(FOLD, [Signal(1, 1_000_000, 0), Signal(1, 1_000_001, 0)], clock=second)
    assert (ran.clock_us, len(ran.outputs), len(ran.pending)) == (1_000_000, 1, 1)


@pytest.mark.parametrize(("time_us", "is_late"), [(999, True), (1_000, True), (1_001, False)])
def test_what_comes_after_the_run_is_late_up_to_the_clock(time_us, is_late):
    event = Signal(1, time_us, 0)
    ran = run(FOLD, [Signal(2, 1_000, 0)], late=[event])
    assert (ran.late, ran.pending) == (([event], []) if is_late else ([], [event]))
    later = run(FOLD, [event], state=run(FOLD, [Signal(2, 1_000, 0)]), clock=2_000)
    assert later.late == ([event] if is_late else [])


def test_a_state_may_have_a_timeout():
    known = {"ann": OpenSession(1, 2, 3)}
    ran = run(SESSIONS, [], clock=50, state=known, timeouts={"ann": 50})
    assert ran.outputs == [UserSession("ann", 1, 2, 3)]
    ran = run(SESSIONS, [UserEvent("ann", 49)], state=known, timeouts={"ann": 50})
    assert ran.timeouts == {"ann": 149}


def test_in_processing_time_events_are_folded_when_they_are_ingested():
    ran = run(IN_PROCESSING_TIME, [line(5)], clock=2_000_000)
    assert ran.outputs == [HealthChange("api", "stale")]


class Said(NamedTuple):
    key: str
    word: str


def keep_word(key: str, events: Iterator[Said], state: GroupState[Said]) -> Iterator[Said]:
    for event in events:
        if event.word == "forget":
            state.remove()
        else:
            state.update(event)
    return iter(())


WORDS = flat_map_groups_with_state(
    keep_word,
    key="key",
    event=Said,
    state=NamedTuple("Kept", [("name", str), ("word", str)]),
    output=Said,
    output_mode="update",
    project=lambda key, retained: Said(key, retained[1]),
)


def test_a_removed_row_of_an_update_stream_is_no_output():
    first = run(WORDS, [Happened(Said("a", "yes"), 1), Happened(Said("b", "no"), 1)])
    assert first.outputs == [Said("a", "yes"), Said("b", "no")]
    second = run(WORDS, [Happened(Said("a", "forget"), 2)], state=first)
    assert (second.outputs, second.removed, set(second.states)) == ([], ["a"], {"b"})


def refusing(device_id, signals, state):
    for signal in signals:
        state.update(Counted(1 // signal.value))
    return iter(())


def test_dead_letters_are_told():
    fold = replace(FOLD, function=refusing, on_error="dead_letter")
    ran = run(fold, [Signal(1, 1, 0), Signal(1, 2, 1)])
    assert [call.error for call in ran.dead_letters] == ["ZeroDivisionError"]
    assert ran.states == {1: Counted(1)}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: run(FOLD, []),
        lambda: run(IN_PROCESSING_TIME, [LogLine("api")]),
        lambda: run(IN_PROCESSING_TIME, [line(5)], late=[line(4)]),
        lambda: run(IN_PROCESSING_TIME, [line(5)], clock=4),
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        wrong()
