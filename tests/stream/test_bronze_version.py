"""Pins and counts of bronze against plain Python, at the edges of what Delta's log rounds."""

import tempfile
from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from operator import add
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import EPOCH
from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.registry import streams_of
from include.stream.bronze import count_before, has_commit, newest_bronze
from include.streams.user_counts import FOLD, UserEvent
from tests.bronze import FIRST_INGESTED_US, ClockAt, Commit, StampedRow, append_commit, stamp
from tests.examples import examples
from tests.refused import refused

pytestmark = pytest.mark.slow

SOURCE = "user_events"
DAY_US = 24 * 3_600_000_000
START_US = 1_750_032_000_000_000  # a midnight
# Dates in a row, now and around 1970, where instants turn negative.
MIDNIGHTS_US = [base_us + day * DAY_US for base_us in (0, START_US) for day in (-1, 0, 1)]
AROUND_US = [0, *(sign * us for us in (1, 500, 999, 1000, 1001) for sign in (-1, 1))]
instants_us = st.sampled_from([midnight + us for midnight in MIDNIGHTS_US for us in AROUND_US])
made_commits = st.lists(
    st.lists(instants_us.map(lambda us: UserEvent("ann", us)), min_size=1, max_size=4)
    | instants_us.map(ClockAt),
    min_size=1,
    max_size=6,
)
gaps_us = st.lists(st.sampled_from([1, 500, 999, 1000, DAY_US]), min_size=6, max_size=6)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory):
    lake = Lake(str(tmp_path_factory.mktemp("any")))
    append_commit(lake, SOURCE, FOLD, stamp([[UserEvent("ann", 0)]])[0])
    return DeltaTable(lake.bronze(SOURCE)).schema()


def create(lake: Lake, schema, by_date: bool = True, statistics: bool = True) -> None:
    columns = "32" if statistics else "0"
    DeltaTable.create(
        lake.bronze(SOURCE),
        schema,
        partition_by=["event_date"] if by_date else None,
        configuration={"delta.dataSkippingNumIndexedCols": columns},
    )


def append(lake: Lake, commits: Sequence[Sequence[StampedRow]]) -> None:
    for rows in commits:
        append_commit(lake, SOURCE, FOLD, rows)


def counted(commits, time_column: str, since_us: int | None, cutoff_us: int) -> int:
    """The number of events before the cutoff."""
    times = [
        row.time_us if time_column == "event_time" else row.ingested_us
        for rows in commits
        for row in rows
        if row.event is not None
    ]
    return sum((since_us is None or since_us <= us) and us < cutoff_us for us in times)


def stamped(commits: Sequence[Commit], gaps: Sequence[int]) -> list[list[StampedRow]]:
    """Ingested one after the other, some within one millisecond."""
    return stamp(commits, list(accumulate(gaps[: len(commits)], initial=FIRST_INGESTED_US)))


def near(commits) -> st.SearchStrategy[int]:
    """Instants at or near one of the commits' own, and one after all of them."""
    rows = [row for rows in commits for row in rows]
    own_us = sorted({us for row in rows for us in (row.time_us, row.ingested_us)})
    around_us = st.builds(add, st.sampled_from(own_us), st.sampled_from(AROUND_US))
    return st.sampled_from(own_us) | around_us | st.just(own_us[-1] + DAY_US)


@examples(60)
@given(
    made_commits, gaps_us, st.booleans(), st.booleans(), st.sampled_from([0, 0, 1, 2]), st.data()
)
def test_a_pin_and_its_counts_are_exact_to_the_microsecond(
    schema, made, gaps, by_date, statistics, compactions, data
):
    commits = stamped(made, gaps)
    pinned = commits[: data.draw(st.integers(1, len(commits)))]
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        create(lake, schema, by_date, statistics)
        append(lake, pinned)
        if compactions == 2:
            DeltaTable(lake.bronze(SOURCE)).optimize.compact()
        bronze = newest_bronze(lake, SOURCE)
        assert (bronze.ingested_at_us, bronze.watermark_us) == (
            pinned[-1][0].ingested_us,
            pinned[-1][0].commit_us,
        )
        append(lake, commits[len(pinned) :])
        if compactions == 1:
            DeltaTable(lake.bronze(SOURCE)).optimize.compact()
        for time_column, calls in (("event_time", 4), ("ingested_at", 2)):
            for _ in range(calls):
                since_us = data.draw(st.none() | near(commits))
                cutoffs = data.draw(st.lists(near(commits), min_size=1, max_size=2))
                expected = [counted(pinned, time_column, since_us, cutoff) for cutoff in cutoffs]
                assert count_before(bronze, time_column, since_us, cutoffs) == expected
        ingested = {row.ingested_us for rows in commits for row in rows}
        for asked in data.draw(st.sets(near(commits), min_size=1, max_size=5)):
            assert has_commit(bronze, asked) == (asked in ingested)


def test_files_that_the_log_counts_are_not_read(lake, schema):
    days = [[UserEvent("ann", START_US + day * DAY_US + us) for us in (0, 7)] for day in range(4)]
    create(lake, schema)
    append(lake, stamp([*days[:3], [UserEvent("ann", START_US + 9)], days[3]]))
    bronze = newest_bronze(lake, SOURCE)
    beginnings = [START_US + day * DAY_US for day in range(4)]
    delete_data(lake, days=range(4))
    assert count_before(bronze, "event_time", None, beginnings) == [0, 3, 5, 7]
    assert count_before(bronze, "event_time", beginnings[1], [beginnings[3]]) == [4]
    with pytest.raises(LakeError):  # within a date, and a file
        count_before(bronze, "event_time", None, [beginnings[1] + 5])


def delete_data(lake: Lake, days: range) -> None:
    for day in days:
        date = EPOCH + timedelta(microseconds=START_US + day * DAY_US)
        for file in Path(lake.bronze(SOURCE), f"event_date={date:%F}").glob("*.parquet"):
            file.unlink()


def test_bronze_without_rows_cannot_be_pinned(lake, schema):
    with refused("nothing_there", subject=f"bronze/{SOURCE}") as raised:
        newest_bronze(lake, SOURCE)
    assert raised.value.command in {f"./stateful stream {s.name}" for s in streams_of(SOURCE)}
    create(lake, schema)
    with refused("nothing_there", subject=f"bronze/{SOURCE}"):
        newest_bronze(lake, SOURCE)
