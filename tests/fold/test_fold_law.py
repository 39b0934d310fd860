"""The fold law on the local engine: no cut, order or number of buckets changes a result."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.fold.local import LocalFold
from include.streams import device_signals, user_counts
from include.streams.device_signals import Signal
from include.streams.user_counts import UserEvent
from tests.bronze import stamp

DELAY_US = 5_000  # 5 ms: a few of the instants below, so that events are settled at every cut
# Few keys and instants, so that equal keys, equal times and whole equal rows are common.
TIMES = st.integers(0, 30_000) | st.integers(0, 30).map(lambda ms: ms * 1_000)
SIGNALS = st.builds(Signal, st.integers(0, 3), TIMES, st.integers(0, 2))
USER_EVENTS = st.builds(UserEvent, st.sampled_from("abcd"), TIMES)


@st.composite
def commits_within_delay(draw: st.DrawFn, events: st.SearchStrategy[Any]) -> list[list[Any]]:
    """Events cut into commits, in an order in which none comes late."""
    drawn = draw(st.lists(events, min_size=1, max_size=60))
    arrival = {id(e): e.event_time_us + draw(st.integers(0, DELAY_US - 1_000)) for e in drawn}
    ordered = sorted(drawn, key=lambda event: arrival[id(event)])
    return cut(draw, ordered)


def cut(draw: st.DrawFn, events: Sequence[Any]) -> list[list[Any]]:
    cuts = sorted(draw(st.sets(st.integers(1, len(events)), max_size=6)) | {len(events)})
    return [list(events[a:b]) for a, b in zip([0, *cuts], cuts, strict=False) if a < b]


def run(
    fold: KeyedFold, commits: list[list[Any]], buckets: int, runs: Sequence[int] | None = None
) -> LocalFold:
    engine = LocalFold(fold, DELAY_US, buckets)
    stamped = stamp(commits)
    batch: list[Any] = []
    for number, commit in enumerate(stamped, 1):
        batch.extend(commit)
        if runs is None or number in runs or number == len(stamped):
            engine.run_batch(batch)
            batch = []
    return engine


def one_pass(fold: KeyedFold, commits: list[list[Any]]) -> LocalFold:
    """Everything sorted by time in one commit: what the fold would do with all the time."""
    events = sorted((e for commit in commits for e in commit), key=lambda e: e.event_time_us)
    return run(fold, [events], buckets=1)


def outputs(engine: LocalFold) -> Counter[Any]:
    return Counter(zip(engine.emitted.rows, engine.emitted.emitted_at_us, strict=True))


@given(commits_within_delay(SIGNALS), st.sampled_from([1, 2, 7]), st.sets(st.integers(1, 6)))
def test_append_outputs_and_states_do_not_depend_on_the_cut(commits, buckets, runs):
    engine, oracle = run(device_signals.FOLD, commits, buckets, runs), None
    oracle = one_pass(device_signals.FOLD, commits)
    assert engine.late == 0
    assert outputs(engine) == outputs(oracle)
    assert engine.states() == oracle.states()
    assert engine.pending() == oracle.pending()


@given(commits_within_delay(USER_EVENTS), st.sampled_from([1, 2, 7]), st.sets(st.integers(1, 6)))
def test_update_states_do_not_depend_on_the_cut(commits, buckets, runs):
    engine = run(user_counts.FOLD, commits, buckets, runs)
    oracle = one_pass(user_counts.FOLD, commits)
    assert engine.late == 0
    assert engine.states() == oracle.states()
    assert engine.pending() == oracle.pending()


@given(commits_within_delay(SIGNALS), st.permutations(range(60)))
def test_the_order_inside_a_commit_does_not_matter(commits, order):
    shuffled = [[c[i] for i in order if i < len(c)] for c in commits]
    assert outputs(run(device_signals.FOLD, shuffled, 2)) == outputs(
        run(device_signals.FOLD, commits, 2)
    )


@given(st.lists(st.lists(SIGNALS, min_size=1, max_size=8), min_size=1, max_size=8))
def test_rows_add_up_and_runs_may_join_commits_even_when_rows_are_late(commits):
    each, together = run(device_signals.FOLD, commits, 3), run(device_signals.FOLD, commits, 3, [])
    events = sum(len(commit) for commit in commits)
    assert len(each.emitted.rows) + each.pending() + each.late == events
    assert outputs(each) == outputs(together)
    assert (each.states(), each.late) == (together.states(), together.late)


@given(commits_within_delay(SIGNALS))
def test_outputs_are_what_a_plain_count_of_settled_signals_gives(commits):
    events = [event for commit in commits for event in commit]
    watermark = max(e.event_time_us for e in events) // 1000 * 1000 - DELAY_US
    seen: Counter[int] = Counter()
    expected = []
    for event in sorted(events, key=lambda e: e.event_time_us):
        if event.event_time_us <= watermark:
            seen[event.device_id] += 1
            expected.append(((event.device_id, seen[event.device_id]), event.event_time_us))
    assert outputs(run(device_signals.FOLD, commits, 2)) == Counter(expected)


@pytest.mark.parametrize(("offset_us", "late"), [(-1, 1), (0, 1), (1, 0)])
def test_a_row_exactly_at_the_watermark_is_late(offset_us, late):
    newest = 20_000
    first, second = [Signal(1, newest, 0)], [Signal(1, newest - DELAY_US + offset_us, 0)]
    assert run(device_signals.FOLD, [first, second], 1).late == late


@pytest.mark.parametrize(("offset_us", "settled"), [(-1, 1), (0, 1), (1, 0)])
def test_an_event_exactly_at_the_watermark_is_settled(offset_us, settled):
    newest = 20_000
    events = [Signal(1, newest - DELAY_US + offset_us, 0), Signal(1, newest, 0)]
    assert len(run(device_signals.FOLD, [events], 1).emitted.rows) == settled
