"""The plan of a restatement, against counts in plain Python; and the runs of a backfill near another."""

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
from include.stream.restate_plan import NEAR, RestatePlan, near_dates, plan_restate
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


@pytest.mark.parametrize("hours", [(0, 1), (1, 4), (2, 3), (4, 5)])
def test_a_restatement_reads_from_a_savepoint_before_it_to_its_end(planned_lake, hours):
    first, until = (START + hour * HOUR for hour in hours)
    before = [at for at in EVENTS if at < until]
    assert planned(planned_lake, *hours).rows_to_read == len(before)
    older = len([at for at in EVENTS if at < START + 2 * HOUR])
    record(planned_lake, "at two", START + 2 * HOUR, older)
    is_used = first >= START + 2 * HOUR
    assert planned(planned_lake, *hours).rows_to_read == len(before) - older * is_used


def test_what_is_not_complete_is_refused(planned_lake):
    with refused("not_complete", subject=STREAM.name, command=f"./stateful stream {STREAM.name}"):
        planned(planned_lake, 3, 6)
    with refused("wrong_argument", subject="UNTIL"):
        planned(planned_lake, 2, 2)


def test_what_an_initial_state_stands_for_is_refused(planned_lake):
    begun = replace(IDENTITY, since_us=(START + 2 * HOUR - EPOCH) // MICROSECOND)
    plan = planned(planned_lake, 1, 4, begun)
    assert plan.rows_to_read == sum(len(within(EVENTS, hour)) for hour in (2, 3))
    with refused("before_initial_state", subject=STREAM.name):
        planned(planned_lake, 0, 2, begun)


def test_an_update_table_has_no_interval_to_restate(planned_lake):
    identity = replace(IDENTITY, output_mode="update")
    with refused(
        "no_interval", subject=STREAM.name, command="./stateful rebuild user_counts --apply"
    ):
        planned(planned_lake, 0, 2, identity)


def test_states_that_were_mapped_have_no_beginning_to_go_back_to(planned_lake):
    mapped = replace(IDENTITY, code=f"{IDENTITY.code}+an older one")
    before = len([at for at in EVENTS if at < START + 2 * HOUR])
    record(planned_lake, "of the code alone", START + 2 * HOUR, before)
    with refused(
        "mapped_state",
        subject=IDENTITY.stream,
        command=f"./stateful rebuild {IDENTITY.stream} --full-refresh --apply",
    ):
        planned(planned_lake, 2, 3, mapped)
    record(planned_lake, "mapped", START + 2 * HOUR, before, mapped.code)
    assert planned(planned_lake, 2, 3, mapped).starting.text() == "savepoint mapped"


def within(instants, hour):
    return [at for at in instants if START + hour * HOUR <= at < START + (hour + 1) * HOUR]


def planned(lake, first_hour, until_hour, identity=IDENTITY) -> RestatePlan:
    interval = START + first_hour * HOUR, START + until_hour * HOUR
    return plan_restate(opened(lake, identity), *interval)


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
