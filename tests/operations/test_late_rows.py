"""Late rows: missed by live, named by the check, taken in by recomputes and reseeds.

`test_recompute.py` and `test_reseed.py` have one story each.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from include.lake.ops import read_ops
from include.plans.reseed_plan import ReseedOptions
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.engines.lake_runs import table_of
from tests.late_lakes import (
    DAYS_US,
    STREAMS,
    admitted,
    at,
    between,
    commits,
    days_named,
    days_of,
    in_runs,
    late_among,
    live_result,
    recompute_day,
    rows_of,
    truth,
    until_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.full]


def check_reseed(spark, lake, stream, before, after) -> None:
    """A reseed takes all rows in, wherever recomputes have been, and new live data keep it so."""
    fold = load_definition(stream).fold
    reseed(SparkEngine(spark), lake, stream, ReseedOptions())
    assert table_of(lake, stream, fold) == truth(fold, rows_of(before), until_of(stream, before))
    assert days_named(lake, stream) == set()
    in_runs(spark, lake, stream, after, runs=1)
    seen = admitted(stream, before, after)
    assert table_of(lake, stream, fold) == truth(fold, seen, until_of(stream, after))
    assert days_named(lake, stream) == days_of(late_among(stream, rows_of(after)))


@pytest.mark.parametrize("name", STREAMS)
def test_late_rows_are_missed_and_named_and_then_taken_in(spark, lake, name):
    stream = STREAMS[name]
    fold = load_definition(stream).fold
    # 2 of 40 rows come a day late: 5 %.
    stamped = commits(seed=12, days=4, source=stream.source, size=38, late=2)
    before, after = stamped[:9], stamped[9:]
    in_runs(spark, lake, stream, before, runs=2)
    right = truth(fold, rows_of(before), until_of(stream, before))
    live = table_of(lake, stream, fold)
    assert live == live_result(stream, fold, before).table != right
    late = late_among(stream, rows_of(before))
    assert days_named(lake, stream) == days_of(late) == {at(day).date() for day in DAYS_US[:2]}

    for day in (0, 1):
        recompute_day(spark, lake, stream, day)
    table = table_of(lake, stream, fold)
    if fold.output_mode == "append":
        assert between(table, 0, DAYS_US[2]) == between(right, 0, DAYS_US[2])
        assert between(table, DAYS_US[2], DAYS_US[4]) == between(live, DAYS_US[2], DAYS_US[4])
        assert days_named(lake, stream) == set()
    else:
        assert table == live
        assert days_named(lake, stream) == days_of(late)
    check_reseed(spark, lake, stream, before, after)


def test_recomputes_at_once_of_intervals_that_overlap_come_to_the_same(spark, lake):
    stream = STREAMS["device_signals"]
    fold = load_definition(stream).fold
    stamped = commits(seed=14, days=4, late=3)
    in_runs(spark, lake, stream, stamped, runs=2)
    intervals = [(0, 2), (1, 3), (1, 3)]
    with ThreadPoolExecutor(len(intervals)) as threads:
        running = [
            threads.submit(recompute, spark, lake, stream, at(DAYS_US[first]), at(DAYS_US[end]))
            for first, end in intervals
        ]
        for each in running:
            each.result()
    right = truth(fold, rows_of(stamped), until_of(stream, stamped))
    table, live = table_of(lake, stream, fold), live_result(stream, fold, stamped).table
    assert between(table, 0, DAYS_US[3]) == between(right, 0, DAYS_US[3])
    assert between(table, DAYS_US[3], DAYS_US[4]) == between(live, DAYS_US[3], DAYS_US[4])
    done = read_ops(lake, "intervals", {"stream": stream.name}).to_pylist()
    assert sorted((row["start"], row["until"]) for row in done) == sorted(
        (at(DAYS_US[first]), at(DAYS_US[end])) for first, end in intervals
    )
