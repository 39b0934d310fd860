"""Calls of a state function that fail: one example for each rule."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from include.fold import failures
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.failures import CUT, TIMEOUTS_IN_A_ROW, StateFunctionError, TimeoutLoopError, cut
from include.fold.group_state import GroupState
from tests.bronze import ClockAt, stamp
from tests.fold.local import LocalFold
from tests.refused import failed_call

SECOND_US = 1_000_000
END = ClockAt(60 * SECOND_US)


class Word(NamedTuple):
    key: str
    event_time_us: int
    text: str | None = None


class Count(NamedTuple):
    words: int
    last: str | None = None


class Said(NamedTuple):
    key: str
    words: int


RECORDS: dict[str, Any] = {
    "key": "key",
    "event": Word,
    "state": Count,
    "output": Said,
    "output_mode": "append",
}
Acts = Callable[[Word | None, GroupState[Count]], Any]


def fold_of(act: Acts, **settings: Any) -> KeyedFold:
    """Counts words, and does `act` with each: None for a timeout."""

    def counting(key: str, words: Iterator[Word], state: GroupState[Count]) -> Iterator[Said]:
        word = next(words, None)
        count = Count((state.get.words if state.exists else 0) + 1)
        state.update(count)
        yield Said(key, count.words)
        act(word, state)

    fold = flat_map_groups_with_state(counting, **(RECORDS | settings))
    return replace(fold, on_error="dead_letter")


def run(fold: KeyedFold, *words: Word) -> LocalFold:
    """One commit for each word, and at last a heartbeat."""
    engine = LocalFold(fold, delay_us=0, buckets=2)
    for rows in stamp([*([word] for word in words), END]):
        engine.run_batch(rows)
    return engine


def fail_at(text: str) -> Acts:
    def act(word: Word | None, state: GroupState[Count]) -> None:
        if word is not None and word.text == text:
            raise ValueError(f"no {text!r} here")

    return act


WORDS = Word("a", SECOND_US, "x"), Word("a", 2 * SECOND_US, "bad"), Word("a", 3 * SECOND_US, "y")


def test_a_dead_letter_leaves_no_trace_but_its_record():
    engine = run(fold_of(fail_at("bad")), *WORDS)
    assert engine.emitted.rows == [Said("a", 1), Said("a", 2)]
    assert engine.states()["a"].state == Count(2)
    (call,) = engine.dead_letters
    assert call[:4] == ("a", 2 * SECOND_US, 0, "event")
    assert json.loads(call.event) == {"key": "a", "event_time_us": 2 * SECOND_US, "text": "bad"}
    assert (call.error, call.message) == ("ValueError", "no 'bad' here")


def test_the_traceback_begins_with_the_function_and_names_no_file():
    (call,) = run(fold_of(fail_at("bad")), *WORDS).dead_letters
    first, last = call.traceback.split("\n")
    assert f"{__name__}:" in first
    assert "in fold_of.<locals>.counting: act(word, state)" in first
    assert "in fail_at.<locals>.act: raise ValueError" in last
    assert "/" not in call.traceback


def test_a_state_of_another_class_is_the_same_for_the_next_call_as_from_a_store():
    """Else what fails would depend on whether a batch ended between the two."""

    def act(word: Word | None, state: GroupState[Count]) -> None:
        state.update(tuple(state.get))  # type: ignore[arg-type]

    together = LocalFold(fold_of(act), delay_us=0)
    for rows in stamp([list(WORDS), END]):
        together.run_batch(rows)
    assert not together.dead_letters
    assert together.states() == run(fold_of(act), *WORDS).states()


def test_half_a_surrogate_pair_is_a_dead_letter_and_can_be_written():
    def act(word: Word | None, state: GroupState[Count]) -> None:
        state.update(Count(1, json.loads(r'"\ud800"')))

    (call,) = run(fold_of(act), WORDS[0]).dead_letters
    assert call.error == "UnicodeEncodeError"
    "".join(filter(None, (call.message, call.event, call.traceback))).encode()


@pytest.mark.parametrize("error", [MemoryError, RecursionError, KeyboardInterrupt, SystemExit])
def test_what_is_not_the_functions_fault_is_never_a_dead_letter(error):
    def act(word: Word | None, state: GroupState[Count]) -> None:
        raise error("enough")

    with pytest.raises((error, StateFunctionError)):
        run(fold_of(act), WORDS[0])


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
@pytest.mark.parametrize("step_us", [1, 1_000, 1_001])
def test_timeouts_set_in_a_loop_stop_the_fold_unless_the_clock_moves(on_error, step_us):
    def act(word: Word | None, state: GroupState[Count]) -> None:
        state.setTimeoutTimestamp(timestampUs=state.clock_us + step_us)

    fold = replace(fold_of(act, timeout="EventTimeTimeout"), on_error=on_error)
    if step_us > 1_000:
        assert len(run(fold, WORDS[0]).emitted.rows) > 2 * TIMEOUTS_IN_A_ROW
        return
    with failed_call("'a'", "timeout", cause=TimeoutLoopError):
        run(fold, WORDS[0])


class Error(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_without_a_text_and_its_cause_are_recorded():
    def act(word: Word | None, state: GroupState[Count]) -> None:
        try:
            int("x")
        except ValueError as error:
            raise Error from error

    (call,) = run(fold_of(act), WORDS[0]).dead_letters
    assert call.error == f"{__name__}.Error"
    assert "RuntimeError" in call.message
    assert "caused by ValueError: invalid literal" in call.traceback


def test_a_deep_traceback_has_its_last_calls():
    def act(word: Word | None, state: GroupState[Count], depth: int = 100) -> None:
        if depth == 0:
            raise ValueError("too deep")
        act(word, state, depth - 1)

    (call,) = run(fold_of(act), WORDS[0]).dead_letters
    assert call.error == "ValueError"
    assert len(call.traceback.split("\n")) == failures.LAST_CALLS
    assert "raise ValueError" in call.traceback


@pytest.mark.parametrize("text", ["", "abc", "é" * 100, "\ud800" * 9, "😀" * 50])
@pytest.mark.parametrize("size", [4, 10, 17])
def test_texts_are_cut_to_bytes_that_are_text(text, size):
    shortened = cut(text, size)
    assert len(shortened.encode()) <= size
    assert shortened.endswith(CUT) or shortened.encode() == text.encode("utf-8", "backslashreplace")


# What stops the fold


def fail_on_timeout(word: Word | None, state: GroupState[Count]) -> None:
    if state.hasTimedOut:
        raise KeyError("no such luck")
    state.setTimeoutTimestamp(timestampUs=state.clock_us + 1_500_001)


def fail_on_timer(word: Word | None, state: GroupState[Count]) -> None:
    if state.timer:
        raise KeyError("no such luck")
    state.setTimer("expiry", timestampUs=state.clock_us + 1)


@pytest.mark.parametrize(
    ("act", "called", "cause"),
    [
        (lambda w, s: 1 / 0, "event at 1970-01-01T00:00:01.000000Z", ZeroDivisionError),
        (fail_on_timeout, "timeout at 1970-01-01T00:00:02.500001Z", KeyError),
        (fail_on_timer, "timer expiry at 1970-01-01T00:00:01.000001Z", KeyError),
        (lambda w, s: s.setTimeoutDuration(1), "event", RuntimeError),
        (lambda w, s: s.update(Count(1.5)), "event", TypeError),
    ],
)
def test_an_error_names_stream_function_key_and_instant(act, called, cause):
    fold = fold_of(act, timeout="EventTimeTimeout", timers=("expiry",), stream="my_stream")
    with failed_call("my_stream", "counting", "'a'", called, cause=cause):
        run(replace(fold, on_error="stop"), WORDS[0])
