"""Late rows: missed by live, named by the check, taken in by recomputes and reseeds.

`test_recompute.py` and `test_reseed.py` have one story each.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from include.lake.ops import read_ops
from include.plans.reseed_plan import ReseedOptions
from include.savepoints.manifest import savepoints_of
from include.settings import Stream
from include.stream_definition import load_definition
from include.streams.threshold_alerts import UserEvent
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from tests.bronze import StampedRow, stamp
from tests.engines.lake_runs import table_of
from tests.late_lakes import (
    DAYS_US,
    HOUR,
    HOUR_US,
    START_US,
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
    small,
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


ORDERS = {
    "a day and the one after the next": [0, 2],
    "the later day first": [2, 0],
    "backwards": [2, 1, 0],
    "one twice": [1, 1],
    "with live savepoints in between": [0, "live", 2],
}


@pytest.mark.parametrize("order", ORDERS)
def test_recomputes_in_any_order_make_just_their_days_right(spark, lake, order):
    stream = STREAMS["device_signals"]  # a late row is felt in every later one
    fold = load_definition(stream).fold
    stamped = commits(seed=13, days=6, source=stream.source, late=3)
    before, after = stamped[:12], stamped[12:]
    in_runs(spark, lake, stream, before, runs=2)
    for step in ORDERS[order]:
        if step == "live":
            known = savepoints_of(lake, stream.name)
            in_runs(spark, lake, stream, after[:3], runs=2)
            before, after = before + after[:3], after[3:]
            assert savepoints_of(lake, stream.name) != known
        else:
            recompute_day(spark, lake, stream, step)
    live = live_result(stream, fold, before).table
    right = truth(fold, rows_of(before), until_of(stream, before))
    table = table_of(lake, stream, fold)
    for day, (start_us, end_us) in enumerate(itertools.pairwise(DAYS_US)):
        wanted = right if day in ORDERS[order] else live
        assert between(table, start_us, end_us) == between(wanted, start_us, end_us), day
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


class Moved(NamedTuple):
    """One late event, and the hours at which it moves the one row of ann."""

    stream: Stream
    hours: list[float]  # of ann's events in time
    late: float
    live: Any
    right: Any


def hour(hours: float) -> int:
    return START_US + int(hours * HOUR_US)


def alert(hours: float, span: timedelta, count: int) -> Any:
    start_us = hour(hours) - span // timedelta(microseconds=1)
    return ("ann", "purchase", count, start_us), hour(hours)


def alerts_over(span: timedelta, limit: int) -> Stream:
    settings = {"event_type": "purchase", "span": span, "limit": limit}
    return small("threshold_alerts", settings=settings)


MOVED = {
    "a session that closes a day later": Moved(
        STREAMS["user_sessions"],
        hours=[22.5],
        late=23.25,
        live=(("ann", hour(22.5), hour(22.5), 1), hour(23.5)),
        right=(("ann", hour(22.5), hour(23.25), 2), hour(24.25)),
    ),
    "an alert on a later day than the late event": Moved(
        alerts_over(40 * HOUR, limit=2),
        hours=[12, 34, 50],
        late=11,
        live=alert(50, 40 * HOUR, 3),
        right=alert(34, 40 * HOUR, 3),
    ),
    "an alert that is the late event's now": Moved(
        alerts_over(10 * HOUR, limit=1),
        hours=[20, 26],
        late=21,
        live=alert(26, 10 * HOUR, 2),
        right=alert(21, 10 * HOUR, 2),
    ),
}


def commits_of(case: Moved) -> list[list[StampedRow]]:
    """Ann's events, each in a commit of its own; and at last bob's, who moves the watermark."""

    def bought(user: str, hours: float) -> list[UserEvent]:
        return [UserEvent(user, hour(hours), "purchase")]

    made = [bought("ann", hours) for hours in case.hours]
    return stamp([*made, bought("bob", 60), bought("ann", case.late), bought("bob", 73)])


@pytest.mark.parametrize("recomputed", [[0], [2, 0, 1]])
@pytest.mark.parametrize("case", MOVED)
def test_a_late_event_moves_a_row_to_another_day(spark, lake, case, recomputed):
    moved, stamped = MOVED[case], commits_of(MOVED[case])
    stream, fold = moved.stream, load_definition(moved.stream).fold

    def of_ann() -> list[Any]:
        return sorted(row for row in table_of(lake, stream, fold).elements() if row[0][0] == "ann")

    in_runs(spark, lake, stream, stamped, runs=2)
    assert of_ann() == [moved.live]
    assert days_named(lake, stream) == {at(START_US).date()}
    for day in recomputed:
        recompute_day(spark, lake, stream, day)
    days = {day: (DAYS_US[day], DAYS_US[day + 1]) for day in range(3)}
    wanted = [
        row
        for day, (start_us, end_us) in days.items()
        for row in [moved.right if day in recomputed else moved.live]
        if start_us <= row[1] < end_us
    ]
    assert of_ann() == sorted(wanted)

    reseed(SparkEngine(spark), lake, stream, ReseedOptions())
    assert of_ann() == [moved.right]
    new = [UserEvent("ann", hour(80), "purchase")], [UserEvent("bob", hour(90), "purchase")]
    after = stamp([[row.event for row in commit] for commit in stamped] + list(new))[-2:]
    in_runs(spark, lake, stream, after, runs=1)
    right = truth(fold, rows_of([*stamped, *after]), until_of(stream, after))
    assert table_of(lake, stream, fold) == right
