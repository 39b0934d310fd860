"""The plan of a backfill's Dag runs, against counts in plain Python; and which of them rebuilds."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import EPOCH, MICROSECOND, micros_of
from include.lake.generations import GenerationRow
from include.lake.paths import Lake
from include.registry import stream_named
from include.stream.bronze import newest_bronze
from include.stream.manifest import StreamIdentity
from include.stream.open_stream import OpenStream, open_stream
from include.stream.record import StreamRecord
from include.stream.restate_plan import NEAR, near_dates, plan_backfill, schedule_intervals
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import append_commit, of_ours, stamp
from tests.refused import refused
from tests.stream import entries
from tests.stream.entries import entry
from tests.written_savepoint import written_savepoint

STREAM = stream_named("user_counts")  # of every hour
HOUR = timedelta(hours=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
IDENTITY = replace(entries.IDENTITY, delay_us=STREAM.watermark_delay // MICROSECOND, code="now")
# Rows at whole hours, a microsecond before and after: so that edges matter.
EVENTS = [START + n * HOUR + extra * MICROSECOND for n in range(6) for extra in (-1, 0, 1)]
EMITTED = [instant for instant in EVENTS[::2] for _ in range(2)]

MINUTES = st.integers(0, 60 * 24 * 40).map(lambda minutes: START + timedelta(minutes=minutes))


@given(
    start=MINUTES,
    until=MINUTES,
    schedule=st.sampled_from(["*/15 * * * *", "0 * * * *", "20 3 * * *", "0 6 * * 1"]),
)
def test_the_intervals_are_those_that_begin_in_the_range_and_leave_nothing_out(
    start, until, schedule
):
    step = {"*/15": 15, "0 * ": 60, "20 3": 24 * 60, "0 6 ": 7 * 24 * 60}[schedule[:4]]
    intervals = schedule_intervals(schedule, start, until)
    for begin, end in intervals:
        assert start <= begin < until
        assert end - begin == timedelta(minutes=step)
    assert all(one[1] == next_[0] for one, next_ in itertools.pairwise(intervals))
    if intervals:
        assert intervals[0][0] - start < timedelta(minutes=step)
        assert intervals[-1][1] >= until
    else:
        assert until - start < timedelta(minutes=step)


def test_each_run_reads_what_lies_in_its_interval(planned_lake):
    plan = planned(planned_lake, 1, 4)
    assert [run.start for run in plan.runs] == [START + n * HOUR for n in (1, 2, 3)]
    assert [run.rows_to_read for run in plan.runs] == [
        # From the beginning at first, then from the savepoint that the run before has written.
        len([at for at in EVENTS if at < START + 2 * HOUR]),
        *(len(within(EVENTS, n)) for n in (2, 3)),
    ]


def test_what_is_not_complete_is_said_to_be_refused(planned_lake):
    plan = planned(planned_lake, 3, 8)
    assert (len(plan.runs), plan.incomplete) == (2, 3)
    assert plan.complete == START + 5 * HOUR
    with refused("not_complete", subject=STREAM.name, command=f"./stateful stream {STREAM.name}"):
        planned(planned_lake, 5, 6)
    with refused("wrong_argument", subject="FROM"):
        plan_backfill(opened(planned_lake, IDENTITY), START + MICROSECOND, START + HOUR)


def test_what_an_initial_state_stands_for_is_said_to_be_refused(planned_lake):
    begun = replace(IDENTITY, since_us=(START + 2 * HOUR - EPOCH) // MICROSECOND)
    plan = plan_backfill(opened(planned_lake, begun), START, START + 4 * HOUR)
    assert [run.start for run in plan.runs] == [START + 2 * HOUR, START + 3 * HOUR]
    assert plan.early == 2
    with refused("before_initial_state", subject=STREAM.name):
        plan_backfill(opened(planned_lake, begun), START, START + 2 * HOUR)


def test_an_update_table_has_no_interval_to_restate(planned_lake):
    identity = replace(IDENTITY, output_mode="update")
    with refused(
        "no_interval", subject=STREAM.name, command="./stateful rebuild user_counts --apply"
    ):
        plan_backfill(opened(planned_lake, identity), START, START + 2 * HOUR)


def test_states_that_were_mapped_have_no_beginning_to_go_back_to(planned_lake):
    mapped = replace(IDENTITY, code=f"{IDENTITY.code}+an older one")
    interval = START + 2 * HOUR, START + 3 * HOUR
    before = len([at for at in EVENTS if at < START + 2 * HOUR])
    record(planned_lake, "of the code alone", START + 2 * HOUR, before)
    with refused(
        "mapped_state",
        subject=IDENTITY.stream,
        command=f"./stateful rebuild {IDENTITY.stream} --full-refresh --apply",
    ):
        plan_backfill(opened(planned_lake, mapped), *interval)
    record(planned_lake, "mapped", START + 2 * HOUR, before, mapped.code)
    assert (
        plan_backfill(opened(planned_lake, mapped), *interval).starting.text() == "savepoint mapped"
    )


def within(instants, hour):
    return [at for at in instants if START + hour * HOUR <= at < START + (hour + 1) * HOUR]


def planned(lake, first_hour, until_hour):
    interval = START + first_hour * HOUR, START + until_hour * HOUR
    return plan_backfill(opened(lake, IDENTITY), *interval)


def opened(lake: Lake, identity: StreamIdentity) -> OpenStream:
    known = open_stream(lake, STREAM)
    vars(known)["identity"] = identity  # a cached property
    return known


@pytest.fixture
def planned_lake(lake: Lake) -> Lake:
    """Bronze and a table, of a stream that a rebuild has just brought to five o'clock."""
    times = [(at - EPOCH) // MICROSECOND for at in EVENTS]
    for rows in stamp([[UserEvent("u", time_us) for time_us in times]]):
        append_commit(lake, STREAM.source, FOLD, rows)
    table = pa.table({"emitted_at": EMITTED, "emitted_date": [at.date() for at in EMITTED]})
    seeded = entry(1, "rebuild", None, micros_of(START + 5 * HOUR), codes=("now",))
    row = GenerationRow(
        stream=STREAM.name,
        generation=1,
        seed_savepoint="seed",
        until_us=micros_of(START + 5 * HOUR),
        watermark_delay_ms=0,
    )
    told = StreamRecord(stream=STREAM.name, row=row, entries=(seeded,))
    made = of_ours(**told.as_json())
    path = lake.table(STREAM.name)
    write_deltalake(path, table, partition_by=["emitted_date"], commit_properties=made)
    return lake


def record(lake: Lake, name: str, until: datetime, events: int, code: str = IDENTITY.code) -> None:
    bronze_id = newest_bronze(lake, STREAM.source).table_id
    made = {"savepoint_id": name, "events": events, "bronze_id": bronze_id, "code": code}
    written_savepoint(lake, STREAM.name, until, **made)


LOGICAL = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
EVERY = {
    "30 * * * *": timedelta(hours=1),
    "*/10 * * * *": timedelta(minutes=10),
    "30 2 * * *": timedelta(days=1),
}


@given(st.sampled_from(sorted(EVERY)), st.integers(-5, (NEAR + 5) * 1440 * 60))
def test_all_complete_intervals_near_the_run_and_not_its_own(schedule, seconds):
    step, complete = EVERY[schedule], LOGICAL + timedelta(seconds=seconds)
    before = [LOGICAL - n * step for n in range(1, NEAR + 1)]
    ahead = [LOGICAL + n * step for n in range(1, NEAR + 1)]
    after = [date for date in ahead if date + step <= complete]
    assert near_dates(schedule, LOGICAL, complete) == before + after
    assert near_dates(schedule, LOGICAL, None) == before
