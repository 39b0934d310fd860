"""What batches say of the state store, read from `ops` also where it has gaps; which are compared."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.care.rocksdb.history import (
    CLOCKS,
    COUNTERS,
    as_percent,
    changes,
    is_like,
    noise,
    read_history,
)
from include.lake.ops import append_ops
from include.registry import stream_named
from tests.care.rocksdb.made_batches import batch, batches

FIGURE = "bytes_rewritten"
STREAM = stream_named("user_counts")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
METRICS = {metric: number for number, metric in enumerate((COUNTERS | CLOCKS).values(), 1)}


def write_run(lake, run_id: str = "1", job: str = "run_stream", subject: str = STREAM.name, **more):
    run = {"run_id": run_id, "job": job, "subject": subject, "ended_at": NOON}
    append_ops(lake, "runs", [run | more])


def write_batch(lake, batch_id: int, run_id: str = "1", generation: int = 1, **more):
    row = {
        "stream": STREAM.name,
        "generation": generation,
        "batch_id": batch_id,
        "run_id": run_id,
        "rows_in": 100,
        "profile": 1,
        "state_bytes": 1_000,
        "durations_ms": json.dumps({"triggerExecution": 250}),
        "state_metrics": json.dumps([METRICS]),
    }
    append_ops(lake, "batches", [row | more])


def test_before_the_first_run_there_is_nothing(lake):
    history = read_history(lake, STREAM, 1)
    assert (history.batches, history.unmeasured) == ((), 0)
    assert history.under(1) == ()
    assert history.runs_after(-1) == 0


def test_a_batch_has_sparks_figures_and_what_follows_from_them(lake):
    write_run(lake, jvm_rss_bytes=5_000, python_rss_bytes=300)
    write_batch(lake, 1)
    (batch,) = read_history(lake, STREAM, 1).batches
    assert (batch.batch_id, batch.run_id, batch.profile, batch.rows_in) == (1, "1", 1, 100)
    figures = batch.figures
    assert figures["logs_replayed"] == METRICS["rocksdbNumReplayChangelogFiles"]
    assert (figures["batch_ms"], figures["store_memory"]) == (250, 1_000)
    assert figures["rss_bytes"] == 5_300
    rewritten = ("rocksdbTotalBytesWrittenByFlush", "rocksdbTotalBytesWrittenByCompaction")
    assert figures["bytes_rewritten"] == sum(METRICS[metric] for metric in rewritten)
    # Replay is a part of load, and compaction goes on beside the batch.
    apart = {"replay_ms", "compaction_ms", "stall_ms"}
    assert figures["store_ms"] == sum(figures[clock] for clock in CLOCKS.keys() - apart)


def test_only_ordinary_batches_of_the_generation_count_in_order(lake):
    write_run(lake, "1")
    write_run(lake, "2", job="compact_state")
    write_run(lake, "3", subject="device_signals")
    for batch_id, run_id in ((4, "1"), (1, "1"), (0, "1"), (2, "2"), (3, "3"), (5, "unknown")):
        write_batch(lake, batch_id, run_id)
    write_batch(lake, 1, generation=2)
    history = read_history(lake, STREAM, 1)
    # Batch 0 creates the stores.
    assert [batch.batch_id for batch in history.batches] == [1, 4]
    assert [batch.batch_id for batch in read_history(lake, STREAM, 2).batches] == [1]


def test_batches_without_data_and_of_other_profiles_are_told_apart(lake):
    write_run(lake)
    for batch_id, profile, rows in ((1, 1, 10), (2, 1, 0), (3, 2, 10), (4, None, 10), (5, 1, None)):
        write_batch(lake, batch_id, profile=profile, rows_in=rows)
    history = read_history(lake, STREAM, 1)
    assert [batch.batch_id for batch in history.under(1)] == [1]
    assert [batch.batch_id for batch in history.under(2)] == [3]


@pytest.mark.parametrize(
    "gap",
    [
        {"state_metrics": None},
        {"state_metrics": ""},
        {"state_metrics": "[{"},
        {"state_metrics": "[]"},
        {"state_metrics": "{}"},
        {"state_metrics": "[7]"},
        {"state_metrics": "[{}]"},
        {"state_metrics": json.dumps([METRICS, METRICS])},
        {"state_metrics": json.dumps([METRICS | {"rocksdbGetCount": None}])},
        {"state_metrics": json.dumps([METRICS | {"rocksdbGetCount": "many"}])},
        {"durations_ms": None},
        {"durations_ms": "[]"},
        {"durations_ms": "{}"},
        {"state_bytes": None},
    ],
)
def test_a_batch_that_cannot_be_read_is_counted_and_left_out(lake, gap):
    write_run(lake)
    write_batch(lake, 1, **gap)
    write_batch(lake, 2)
    history = read_history(lake, STREAM, 1)
    assert [batch.batch_id for batch in history.batches] == [2]
    assert history.unmeasured == 1


def test_a_run_of_an_earlier_release_has_no_memory_on_record(lake):
    write_run(lake)
    write_batch(lake, 1)
    (batch,) = read_history(lake, STREAM, 1).batches
    assert batch.figures["rss_bytes"] == 0


def test_runs_are_counted_once_however_many_batches_they_have(lake):
    for run_id in "123":
        write_run(lake, run_id)
    for batch_id, run_id in ((1, "1"), (2, "1"), (3, "2"), (4, "2"), (5, "3")):
        write_batch(lake, batch_id, run_id)
    history = read_history(lake, STREAM, 1)
    assert [history.runs_after(batch) for batch in (-1, 1, 2, 4, 5)] == [3, 3, 2, 1, 0]


def percents(after, before) -> list[str]:
    return [as_percent(change) for change in changes(after, before, FIGURE)]


@pytest.mark.parametrize(
    ("one", "other", "like"),
    [
        ({"rows": 1_000}, {"rows": 2_000}, True),
        ({"rows": 1_000}, {"rows": 2_001}, False),
        ({"rows": 1_023}, {"rows": 1_024}, True),
        ({"logs": 0}, {"logs": 0}, True),
        ({"logs": 0}, {"logs": 1}, False),
        ({"logs": 60}, {"logs": 80}, True),
        ({"logs": 59}, {"logs": 80}, False),
    ],
)
def test_like_batches_read_as_many_rows_and_replayed_as_many_logs(one, other, like):
    first, second = batch(1, 0, **one), batch(2, 0, **other)
    assert is_like(first, second) is like
    assert is_like(second, first) is like
    assert is_like(first, first)


def test_a_batch_is_compared_with_the_median_of_its_like():
    before = [batch(1, 100), batch(2, 120), batch(3, 900), batch(4, 5, logs=80)]
    assert percents([batch(9, 60)], before) == ["-50 %"]
    assert percents([batch(9, 10, logs=80)], before) == ["+100 %"]


def test_a_batch_without_its_like_is_left_out():
    assert changes([batch(9, 60, logs=200)], [batch(1, 100)], FIGURE) == []
    assert changes([batch(9, 60)], [], FIGURE) == []


def test_more_than_nothing_is_no_infinite_change():
    assert percents([batch(9, 0.003)], [batch(1, 0)]) == ["+300 %"]  # bytes


def test_where_there_is_none_before_and_after_nothing_is_learnt():
    assert changes([batch(9, 0)], [batch(1, 0)], FIGURE) == []
    assert percents([batch(9, 0)], [batch(1, 100)]) == ["-100 %"]
    assert noise([*batches([100] * 7), *(batch(n, 0, logs=0) for n in range(20))], FIGURE) is None


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_there_and_back_weigh_the_same(one, other):
    (there,) = changes([batch(1, one)], [batch(2, other)], FIGURE)
    (back,) = changes([batch(2, other)], [batch(1, one)], FIGURE)
    assert there == pytest.approx(-back)


def test_without_eight_comparisons_the_noise_is_unknown():
    assert noise(batches([100] * 7), FIGURE) is None
    assert noise(batches([100] * 8), FIGURE) == 0
    apart = [batch(n, 100, logs=8 * 2**n) for n in range(10)]
    assert noise(apart, FIGURE) is None


def test_one_odd_batch_does_not_make_all_of_it_noise():
    steady = batches([100, 102, 98, 101, 99, 100, 100])
    assert noise([*steady, batch(50, 10_000)], FIGURE) < 0.03


@given(st.lists(st.floats(1e3, 1e9), min_size=8, max_size=12), st.floats(1, 1000))
def test_noise_does_not_depend_on_the_unit(values, unit):
    plain = noise(batches(values), FIGURE)
    scaled = noise(batches([value * unit for value in values]), FIGURE)
    assert scaled == pytest.approx(plain, abs=2e-3)
