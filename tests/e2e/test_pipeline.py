"""From landed files to tables, cut in several ways, against SQL over the same files."""

import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.fold.admission import micros_of
from include.ingest.ingest import ingest
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import source_named, stream_named
from include.sample.sample_data import Options, generate
from include.settings import Stream
from include.stream.rebuild_plan import RebuildOptions
from include.stream.stream_status import stream_status
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain, drain_others
from tests.landed_sql import CHAIN, ORACLES, oracle_rows, table_rows

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, tzinfo=UTC)
# Rows come at most 5 minutes late, half of what the streams wait: nothing may be lost.
SAMPLE = Options(
    start=START,
    keys=30,
    events=1_500,
    span_hours=12,
    late_share=0,
    malformed_share=0.03,
    duplicate_share=0.03,
)


def small(name: str) -> Stream:
    """A stream of a few buckets; one that gives alerts does so soon."""
    stream = replace(stream_named(name), buckets=8, state_partitions=2)
    if name != "threshold_alerts":
        return stream
    return replace(stream, settings={**stream.settings, "limit": 1})


def land_in_parts(
    lake: Lake, source: str, parts: int, staging: Path, sample: Options = SAMPLE
) -> list[list[Path]]:
    """The sample's files, cut at random into so many landings, in the order they were made."""
    generate(Lake(str(staging)), source_named(source), sample)
    files = sorted(Path(Lake(str(staging)).landing(source)).iterdir())
    cuts = sorted(random.Random(parts).sample(range(1, len(files)), parts - 1))
    return [files[a:b] for a, b in zip([0, *cuts], [*cuts, len(files)], strict=True)]


def land(lake: Lake, source: str, files: list[Path]) -> None:
    folder = Path(lake.landing(source))
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)


def position(lake: Lake, stream: Stream) -> int:
    """The instant before which the table is complete, in microseconds."""
    runs = read_ops(lake, "runs", {"job": "run_stream", "subject": stream.name}).to_pylist()
    assert sum(run["rows_late"] for run in runs) == 0
    return micros_of(max(run["until"] for run in runs))


def check_table(lake: Lake, stream: Stream) -> None:
    expected = oracle_rows(lake, stream, position(lake, stream))
    assert expected.total() > 0
    assert table_rows(lake, stream.name) == expected


# In three cuts what a run ingests is cut, too. In `make test-e2e` is the one with a clock.
MARKS = {("service_health", 3): pytest.mark.e2e}
CASES = [("user_counts", 1), ("service_health", 1)]
CASES += [(name, parts) for parts in (3, 10) for name in ORACLES if name not in CHAIN[1:]]


@pytest.mark.parametrize(
    ("name", "parts"),
    [pytest.param(*case, marks=MARKS.get(case, pytest.mark.full)) for case in CASES],
)
def test_tables_equal_sql_over_the_landed_files_however_they_are_cut(
    spark, lake, tmp_path, name, parts
):
    stream = small(name)
    # The sample is months old: a heartbeat after its first part would make the others late.
    source = replace(source_named(stream.source), heartbeat_delay=None)
    if parts == 3:  # so that ingest cuts what one run takes in, too
        source = replace(source, commit_bytes=20_000)
    for files in land_in_parts(lake, source.name, parts, tmp_path / "staging"):
        land(lake, source.name, files)
        ingest(lake, source)
        drain(SparkEngine(spark), lake, stream)
    check_table(lake, stream)
    if name == "service_health":
        check_silence(spark, lake, stream)


@pytest.mark.e2e
@pytest.mark.turn(1)
def test_streams_that_share_a_jvm_equal_sql_each(spark, lake, tmp_path):
    first, *others = map(small, ["user_counts", "user_sessions", "threshold_alerts"])
    engine, source = SparkEngine(spark), source_named(first.source)
    make_ready = partial(close_state_stores, spark)
    for files in land_in_parts(lake, source.name, 2, tmp_path / "staging"):
        land(lake, source.name, files)
        ingest(lake, source)
        drain(engine, lake, first, "one instant")
        drain_others(engine, lake, others, "one instant", make_ready)
    for stream in (first, *others):
        check_table(lake, stream)
        done = read_ops(lake, "runs", {"subject": stream.name, "dag_run_id": "one instant"})
        assert done.column("outcome").to_pylist() == ["succeeded"] * 2


@pytest.mark.full
def test_a_chain_over_a_million_events_equals_sql_within_sql(spark, lake, tmp_path):
    """Late rows at the root are taken in by a rebuild of each stream, and rows of the first two taken back."""
    sample = replace(SAMPLE, keys=2_000, events=1_000_000, span_hours=24 * 60, late_share=0.01)
    engine, streams = SparkEngine(spark), [*map(stream_named, CHAIN)]
    for files in land_in_parts(lake, "user_events", 2, tmp_path / "staging", sample):
        land(lake, "user_events", files)
        for stream in streams:
            ingest(lake, source_named(stream.source))
            drain(engine, lake, stream)
    for stream in streams:
        changed = ingest(lake, source_named(stream.source)).rows_bronze
        late = stream_status(lake, stream).table_status.wrong
        rebuild(engine, lake, stream, RebuildOptions())
        status = stream_status(lake, stream)
        assert (bool(late), status.is_right) == (True, True)
        expected = oracle_rows(lake, stream, status.table_status.until_us)
        assert table_rows(lake, stream.name) == expected
        print(f"{stream.name}: {expected.total():,} rows, {changed:,} of its bronze changed")  # noqa: T201
        assert expected.total() > 1_000


def check_silence(spark: SparkSession, lake: Lake, stream: Stream) -> None:
    """An hour after the last line, with nothing new landed, every service is stale."""
    source, end = source_named(stream.source), START + timedelta(hours=SAMPLE.span_hours + 1)
    ingest(lake, source, interval_end=end)
    drain(SparkEngine(spark), lake, stream)
    complete = end - source.heartbeat_delay - stream.watermark_delay
    assert position(lake, stream) == micros_of(complete) + 1
    check_table(lake, stream)
    changes = sorted(table_rows(lake, stream.name), key=lambda change: change[2])
    last = {service: status for service, status, _ in changes}
    assert len(last) == SAMPLE.keys
    assert set(last.values()) == {"stale"}
