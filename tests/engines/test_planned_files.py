"""Workers that are told which files a replay needs pack the rows within its bounds."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from include.fold.bucket import INSTANTS
from include.lake.paths import Lake
from include.streams import user_counts
from spark_jobs.engines import packed_files
from spark_jobs.engines.packed_files import BronzeEvents
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.spark_engine import SparkEngine
from tests.engines.live_lakes import START_US
from tests.engines.test_packed_files import (
    FOLDS,
    IDS,
    INSTANT,
    SECOND_US,
    by_bucket,
    packed_here,
    rows_of,
)

DAY_US = 86_400_000_000
SOURCE = "events"
ALL_US = START_US + 30 * SECOND_US  # of the instants of ingestion
# Ingested by, from and until, on the fold's clock.
BOUNDS = [
    (ALL_US, None, None),
    (START_US, None, START_US + DAY_US),
    (ALL_US, START_US - SECOND_US, START_US + 5 * SECOND_US),
    (ALL_US, START_US + DAY_US, START_US + 2 * DAY_US),
    (ALL_US, START_US + 9 * DAY_US, None),
]


def over_days(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Rows of bronze, over four days of event time, with the date that it is partitioned by."""
    days = rng.integers(-1, 3, rows.num_rows) * DAY_US
    micros = rows["event_time"].cast(pa.int64()).to_numpy() + days
    times = pa.array(micros).cast(INSTANT)
    rows = rows.set_column(rows.column_names.index("event_time"), "event_time", times)
    return rows.append_column("event_date", times.cast(pa.date32()))


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake(str(tmp_path / "a b=c#ü"))


def within(lake: Lake, fold, ingested_us, from_us, until_us) -> pa.Table:
    rows = DeltaTable(lake.bronze(SOURCE)).to_pyarrow_table()
    wanted = pc.and_(
        pc.invert(rows["is_heartbeat"]),
        pc.less_equal(rows["ingested_at"].cast("int64"), ingested_us),
    )
    time_us = rows[INSTANTS[fold.time_us]].cast("int64")
    if from_us is not None:
        wanted = pc.and_(wanted, pc.greater_equal(time_us, from_us))
    if until_us is not None:
        wanted = pc.and_(wanted, pc.less(time_us, until_us))
    return rows.filter(wanted)


def fill(lake: Lake, fold, commits: int = 3) -> None:
    rng = np.random.default_rng(11)
    for _ in range(commits):
        rows = over_days(rows_of(fold, rng, 300), rng)
        write_deltalake(lake.bronze(SOURCE), rows, mode="append", partition_by=["event_date"])


def events_of(spark: SparkSession, lake: Lake, fold, *bounds: int | None) -> BronzeEvents:
    return SparkEngine(spark).events(lake, SOURCE, fold, Bounds(*bounds))


@pytest.mark.spark
@pytest.mark.parametrize("name", FOLDS)
def test_they_pack_the_events_within_the_bounds(spark: SparkSession, lake, monkeypatch, name):
    fold = FOLDS[name]
    fill(lake, fold)
    monkeypatch.setattr(packed_files, "LEAST_BYTES", 500)
    monkeypatch.setattr(packed_files, "MOST_BYTES", 9_000)  # parts of files, and several tasks
    seen = []
    for bounds in BOUNDS:
        events = events_of(spark, lake, fold, *bounds)
        expected = packed_here(within(lake, fold, *bounds), fold)
        assert by_bucket(events.pack(fold, IDS)) == expected
        seen.append(len(expected))
    assert seen[0] == len(IDS)
    assert seen[-1] == 0


@pytest.mark.spark
def test_a_day_reads_the_files_of_its_dates_alone(spark: SparkSession, lake):
    fill(lake, user_counts.FOLD)
    day = START_US // DAY_US * DAY_US
    events = events_of(spark, lake, user_counts.FOLD, ALL_US, day, day + 1)
    read = {part.path for task in events.tasks for part in task}
    assert len(read) == 3
    assert len({path.split("event_date=")[1][:10] for path in read}) == 1


@given(st.lists(st.integers(1, 3_000), max_size=8), st.integers(1, 4))
def test_tasks_have_each_byte_once_and_none_too_many(sizes, cores):
    least, most = packed_files.LEAST_BYTES, packed_files.MOST_BYTES
    try:
        packed_files.LEAST_BYTES, packed_files.MOST_BYTES = 100, 1_000
        tasks = packed_files._tasks([(str(n), size) for n, size in enumerate(sizes)], cores)
    finally:
        packed_files.LEAST_BYTES, packed_files.MOST_BYTES = least, most
    share = min(1_000, max(100, sum(sizes) // cores))
    assert all(sum(part.length for part in task) <= share for task in tasks)
    assert all(tasks)
    read: dict[str, int] = {}
    for part in (part for task in tasks for part in task):
        assert part.start == read.get(part.url, 0)
        read[part.url] = part.start + part.length
    assert read == {str(n): size for n, size in enumerate(sizes)}
