"""Which dates ask for a recompute: against plain Python on small instants, and on real bronze."""

import tempfile
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from include.backfill.late_dates import (
    Cover,
    LateRows,
    covers_of,
    dates_to_recompute,
    first_stale,
    late_rows,
)
from include.lake import Lake, LakeError
from include.ops import append_ops
from include.streams import stream_named
from spark_jobs.fold.admission import EPOCH
from spark_jobs.streams.user_counts import FOLD, UserEvent
from tests.bronze import ClockAt, append_commit, stamp

STREAM = stream_named("user_counts")
DELAY_US = STREAM.watermark_delay // timedelta(microseconds=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
SOURCE = STREAM.source

# Instants of the pure functions: a few, so that ends meet, and two dates of five.
TICKS, TICKS_A_DATE = 10, 5


def at(tick: int) -> datetime:
    return START + tick * timedelta(days=1) / TICKS_A_DATE


def ingested(number: int) -> datetime:
    return START + timedelta(days=100 + number)


def tick_of(instant: datetime) -> int:
    return (instant - START) * TICKS_A_DATE // timedelta(days=1)


@st.composite
def covers(draw: st.DrawFn) -> Cover:
    start = draw(st.none() | st.integers(0, TICKS - 1))
    until = draw(st.none() | st.integers((start or 0) + 1, TICKS))
    return Cover(
        None if start is None else at(start),
        None if until is None else at(until),
        ingested(draw(st.integers(0, 4))),
    )


@st.composite
def late_groups(draw: st.DrawFn) -> LateRows:
    day = draw(st.integers(0, 1))
    first = draw(st.integers(0, TICKS_A_DATE - 1))
    last = draw(st.integers(first, TICKS_A_DATE - 1))
    base = day * TICKS_A_DATE
    return LateRows(
        at(base).date(),
        ingested(draw(st.integers(0, 4))),
        draw(st.integers(1, 9)),
        at(base + first),
        at(base + last),
    )


def is_right(tick: int, group: LateRows, made: list[Cover]) -> bool:
    """Whether some cover makes the table right at the tick, for the group's rows."""
    return any(
        (cover.start is None or cover.start <= at(tick))
        and (cover.until is None or at(tick) < cover.until)
        and group.ingested_at <= cover.ingested_at
        for cover in made
    )


CASES = (st.lists(late_groups(), max_size=5), st.lists(covers(), max_size=8))


@settings(max_examples=1_000)
@given(*CASES)
def test_the_table_is_stale_from_the_first_instant_that_no_later_cover_holds(late, made):
    # All covers end by TICKS, or never: what holds there holds for ever.
    wrong = [
        at(tick)
        for group in late
        for tick in range(tick_of(group.first), TICKS + 1)
        if not is_right(tick, group, made)
    ]
    assert first_stale(late, made) == min(wrong, default=None)


@settings(max_examples=1_000)
@given(*CASES)
def test_a_date_asks_for_a_recompute_when_an_instant_of_its_late_rows_is_uncovered(late, made):
    expected = defaultdict(list)
    for group in late:
        ticks = range(tick_of(group.first), tick_of(group.last) + 1)
        if not all(is_right(tick, group, made) for tick in ticks):
            expected[group.date].append(group)
    found = dates_to_recompute(late, made)
    assert [one.date for one in found] == sorted(expected)
    for one in found:
        groups = expected[one.date]
        assert one.rows == sum(group.rows for group in groups)
        assert one.first == min(group.first for group in groups)
        assert one.last == max(group.last for group in groups)


@given(st.lists(late_groups(), min_size=1, max_size=5))
def test_one_recompute_of_the_dates_asked_for_is_enough(late):
    dates = {one.date for one in dates_to_recompute(late, [])}
    midnights = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in dates]
    made = [Cover(start, start + timedelta(days=1), ingested(4)) for start in midnights]
    assert dates_to_recompute(late, made) == []
    # What follows these dates was computed from a state without the late rows.
    assert first_stale(late, made) is not None


@given(st.permutations(range(TICKS)))
def test_intervals_that_touch_cover_as_one_in_whatever_order_they_were_recomputed(order):
    made = [Cover(at(tick), at(tick + 1), ingested(order[tick])) for tick in range(TICKS)]
    late = LateRows(START.date(), ingested(0), 1, START, START)
    assert first_stale([late], made) == at(TICKS)
    for gap in range(TICKS):
        assert first_stale([late], made[:gap] + made[gap + 1 :]) == at(gap)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def interval(kind: str, start: int | None, until: int, number: int) -> dict:
    return {
        "stream": STREAM.name,
        "kind": kind,
        "start": None if start is None else at(start),
        "until": at(until),
        "bronze_ingested_at": ingested(number),
    }


def test_a_reseed_covers_for_ever_and_a_recompute_its_interval_of_an_append_table(lake):
    assert covers_of(lake, STREAM.name, "append") == []
    rows = [interval("recompute", 2, 4, 1), interval("reseed", None, 5, 2)]
    append_ops(lake, "intervals", [*rows, rows[0] | {"stream": "another"}])
    recomputed, reseeded = Cover(at(2), at(4), ingested(1)), Cover(None, None, ingested(2))
    found = covers_of(lake, STREAM.name, "append")
    assert sorted(found, key=lambda cover: cover.ingested_at) == [recomputed, reseeded]
    assert covers_of(lake, STREAM.name, "update") == [reseeded]


def oracle(commits, since_us: int) -> list[LateRows]:
    groups = defaultdict(list)
    for row in (row for commit in commits for row in commit):
        is_late = row.arrival_us is not None and row.time_us <= row.arrival_us - DELAY_US
        if row.event is not None and is_late and row.time_us >= since_us:
            groups[instant(row.time_us).date(), instant(row.ingested_us)].append(row.time_us)
    return [
        LateRows(*group, len(times), instant(min(times)), instant(max(times)))
        for group, times in sorted(groups.items())
    ]


def instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def live_batch(commit, **columns) -> dict:
    """The row of a live batch that read `commit`."""
    late = oracle([commit], since_us=0)
    return {
        "stream": STREAM.name,
        "generation": 1,
        "rows_late": sum(group.rows for group in late),
        "late_from": min((group.first for group in late), default=None),
        "late_to": max((group.last for group in late), default=None),
    } | columns


START_US = (START - EPOCH) // timedelta(microseconds=1)
# Steps of half the delay, so that rows come just late and just not; some in one millisecond.
times_us = st.builds(
    lambda step, micros: START_US + step * DELAY_US // 2 + micros,
    st.sampled_from([0, 1, 2, 3, 4, 287, 288, 289, 290, 3 * 288]),
    st.integers(0, 2),
)
commits_of_events = st.lists(
    st.lists(times_us.map(lambda us: UserEvent("ann", us)), min_size=1, max_size=6)
    | times_us.map(ClockAt),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30)
@given(commits_of_events, st.none() | times_us)
def test_late_rows_are_those_of_bronze_however_its_files_lie(commits, as_of_us):
    stamped = stamp(commits)
    expected = oracle(stamped, since_us=as_of_us or 0)
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        made = {"stream": STREAM.name, "generation": 1}
        as_of = None if as_of_us is None else instant(as_of_us)
        append_ops(lake, "generations", [made | {"initial_as_of": as_of}])
        append_ops(lake, "batches", [live_batch(commit) for commit in stamped])
        for commit in stamped:
            for part in filter(None, (commit[::2], commit[1::2])):  # a file each
                append_commit(lake, SOURCE, FOLD, part)
        assert late_rows(lake, STREAM) == expected
        partition_by_date(lake)
        assert late_rows(lake, STREAM) == expected


def partition_by_date(lake: Lake) -> None:
    """The same rows as ingestion lays them."""
    rows = DeltaTable(lake.bronze(SOURCE)).to_pyarrow_table()
    write_deltalake(
        lake.bronze(SOURCE),
        rows,
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=["event_date"],
    )


@pytest.fixture
def stamped(lake: Lake) -> list:
    """Bronze with a commit that brings a late row for each of two dates."""
    days_us = [START_US + day * 86_400_000_000 for day in range(3)]
    commits = stamp([[UserEvent("ann", days_us[2])], [UserEvent("ann", us) for us in days_us[:2]]])
    for commit in commits:
        append_commit(lake, SOURCE, FOLD, commit)
    return commits


def dates_of(lake: Lake) -> list[date]:
    return [group.date for group in late_rows(lake, STREAM)]


def test_only_dates_that_a_run_found_late_rows_in_are_read(lake, stamped):
    assert dates_of(lake) == []
    other = live_batch(stamped[1], stream="another")
    append_ops(lake, "batches", [other, live_batch(stamped[0])])
    assert dates_of(lake) == []
    append_ops(lake, "batches", [live_batch(stamped[1], late_to=START)])
    assert dates_of(lake) == [START.date()]
    later = START + timedelta(days=1)
    append_ops(lake, "batches", [live_batch(stamped[1], generation=2, late_from=later)])
    assert dates_of(lake) == [START.date(), later.date()]


def test_all_dates_are_read_when_an_early_release_did_not_say_which(lake, stamped):
    append_ops(lake, "batches", [live_batch(stamped[1], late_from=None, late_to=None)])
    assert len(dates_of(lake)) == 2


def test_in_processing_time_nothing_is_late(lake, stamped):
    made = {"stream": STREAM.name, "generation": 2, "timeout": "ProcessingTimeTimeout"}
    append_ops(lake, "batches", [live_batch(stamped[1])])
    append_ops(lake, "generations", [made])
    assert late_rows(lake, STREAM) == []


def test_bronze_that_is_gone_is_an_error(lake):
    late = {"stream": STREAM.name, "rows_late": 1, "late_from": START, "late_to": START}
    append_ops(lake, "batches", [late])
    with pytest.raises(LakeError, match=r"no bronze table at .*user_events"):
        late_rows(lake, STREAM)
