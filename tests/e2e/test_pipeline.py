"""From landed files to tables, cut in several ways, against SQL over the same files."""

import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.fold.instants import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.registry import source_named, stream_named
from include.sample.sample_data import Options, generate
from include.settings import Stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.landed_sql import ORACLES, oracle_rows, table_rows

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, tzinfo=UTC)
# Rows come at most 5 minutes late, half of what the streams wait: nothing may be lost.
SAMPLE = Options(
    start=START,
    keys=30,
    events=1_500,
    span_hours=12,
    disorder_minutes=5,
    late_share=0,
    malformed_share=0.03,
    duplicate_share=0.03,
)


def land_in_parts(lake: Lake, source: str, parts: int, staging: Path) -> list[list[Path]]:
    """The sample's files, cut at random into so many landings, in the order they were made."""
    generate(Lake(str(staging)), source_named(source), SAMPLE)
    files = sorted(Path(Lake(str(staging)).landing(source)).iterdir())
    cuts = sorted(random.Random(parts).sample(range(1, len(files)), parts - 1))
    return [files[a:b] for a, b in zip([0, *cuts], [*cuts, len(files)], strict=True)]


def land(lake: Lake, source: str, files: list[Path]) -> None:
    folder = Path(lake.landing(source))
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)


def position(lake: Lake) -> int:
    """The instant before which the table is complete, in microseconds."""
    runs = [run for run in read_ops(lake, "runs").to_pylist() if run["job"] == "run_stream"]
    assert sum(run["rows_late"] for run in runs) == 0
    return micros_of(max(run["until"] for run in runs))


def check_table(lake: Lake, stream: Stream) -> None:
    expected = oracle_rows(lake, stream, position(lake))
    assert expected.total() > 0
    assert table_rows(lake, stream.name) == expected


# In three cuts what a run ingests is cut, too. In `make test-e2e` are the update stream and the
# one with a clock.
MARKS = {
    ("user_counts", 3): pytest.mark.e2e,
    ("service_health", 3): pytest.mark.e2e,
}
CASES = [("user_counts", 1), ("service_health", 1)]
CASES += [(name, parts) for parts in (3, 10) for name in ORACLES]


@pytest.mark.parametrize(
    ("name", "parts"),
    [pytest.param(*case, marks=MARKS.get(case, pytest.mark.full)) for case in CASES],
)
def test_tables_equal_sql_over_the_landed_files_however_they_are_cut(
    spark, lake, tmp_path, name, parts
):
    stream = replace(stream_named(name), buckets=8, state_partitions=2)
    if name == "threshold_alerts":
        stream = replace(stream, settings={**stream.settings, "limit": 1})
    # The sample is months old: a clock row after its first part would make the others late.
    source = replace(source_named(stream.source), clock_grace=None)
    if parts == 3:  # so that ingest cuts what one run takes in, too
        source = replace(source, commit_bytes=20_000)
    for files in land_in_parts(lake, source.name, parts, tmp_path / "staging"):
        land(lake, source.name, files)
        ingest(lake, source)
        drain(SparkEngine(spark), lake, stream)
    check_table(lake, stream)
    if name == "service_health":
        check_silence(spark, lake, stream)


def check_silence(spark: SparkSession, lake: Lake, stream: Stream) -> None:
    """An hour after the last line, with nothing new landed, every service is stale."""
    source, end = source_named(stream.source), START + timedelta(hours=SAMPLE.span_hours + 1)
    ingest(lake, source, interval_end=end)
    drain(SparkEngine(spark), lake, stream)
    settled = end - source.clock_grace - stream.watermark_delay
    assert position(lake) == micros_of(settled) + 1
    check_table(lake, stream)
    changes = sorted(table_rows(lake, stream.name), key=lambda change: change[2])
    last = {service: status for service, status, _ in changes}
    assert len(last) == SAMPLE.keys
    assert set(last.values()) == {"stale"}
