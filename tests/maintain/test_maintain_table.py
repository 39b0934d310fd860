"""Tables are optimized and vacuumed between the runs of real streams, which notice nothing."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.ingest.ingest import ingest
from include.lake.generations import complete_until
from include.lake.paths import Lake
from include.maintain.table_maintenance import maintained_tables
from include.registry import source_named, stream_named
from include.settings import TABLE_MAINTENANCE, SavepointRules, Stream
from include.stream.checkpoint import newest_committed
from include.stream.open_stream import has_waiting_rows
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.maintain_table import maintain
from spark_jobs.run_stream import drain
from tests.landed_files import Landing, signal
from tests.watermarks import watermark_of

pytestmark = [pytest.mark.spark, pytest.mark.turn(2)]

# Any two files are joined, and any old file is deleted.
EAGER = replace(TABLE_MAINTENANCE, min_small_files=2, min_garbage_files=1)
SIGNALS = source_named("signals")


DEVICES = replace(
    stream_named("device_signals"),
    buckets=5,
    state_partitions=2,
    savepoints=SavepointRules(cadence=None),
)


def forget_retention(*paths: str) -> None:
    """From now on VACUUM deletes what was replaced, however recently."""
    for path in paths:
        properties = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
        DeltaTable(path).alter.set_table_properties(properties)


def maintain_twice(spark, lake: Lake, *names: str) -> None:
    """Maintain tables twice: the second run deletes what the first has replaced."""
    for _ in range(2):
        tables = [table for table in maintained_tables(lake) if table.name in names]
        maintain(spark, lake, tables, EAGER)


def only_its_newest_files_are_left(path: str) -> bool:
    on_disk = {file.name for file in Path(path).rglob("[!.]*.parquet")}
    on_disk -= {file.name for file in Path(path, "_delta_log").iterdir()}
    return on_disk == {uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()}


def forget_newest_batch(lake: Lake, stream: Stream) -> None:
    """Make the stream look as if it had died between writing and committing its newest batch."""
    checkpoint = lake.checkpoint(stream.name, 1)
    newest = newest_committed(lake, checkpoint)
    for name in (f"{newest}", f".{newest}.crc"):
        Path(checkpoint, "commits", name).unlink()


def counted_signals(lines: list[str], until) -> Counter:
    """Each device's signals before `until`, numbered in order of time: the oracle."""
    signals = sorted((row["timestamp"], row["device_id"]) for row in map(json.loads, lines))
    seen: Counter = Counter()
    rows: Counter = Counter()
    for timestamp, device in signals:
        if timestamp < until.isoformat():
            seen[device] += 1
            rows[device, seen[device], timestamp] += 1
    return rows


def counted_rows(lake: Lake) -> Counter:
    rows = DeltaTable(lake.table("device_signals")).to_pyarrow_table().to_pylist()
    return Counter((r["device_id"], r["count"], r["emitted_at"].isoformat()) for r in rows)


@pytest.mark.e2e
def test_a_source_and_its_stream_go_on_over_optimized_and_vacuumed_tables(spark, lake):
    landing, landed = Landing(lake), []
    bronze, quarantine = lake.bronze("signals"), lake.quarantine("signals")
    product = lake.table("device_signals")

    def land(number: int) -> None:
        # Four events in six hours; the first two files begin on the same day.
        hours = (12 + 8 * number + 2 * n for n in range(4))
        lines = [signal(hour * 3600, device_id=hour % 3) for hour in hours]
        landing.add(f"{number}.jsonl", [*lines, "{"])
        landed.extend(lines)
        ingest(lake, SIGNALS)

    land(0)
    land(1)
    drain(SparkEngine(spark), lake, DEVICES)
    forget_retention(bronze, quarantine, product)
    before = watermark_of(lake), counted_rows(lake)
    maintain_twice(spark, lake, "bronze/signals", "quarantine/signals", "tables/device_signals")
    for path in bronze, quarantine, product:
        assert only_its_newest_files_are_left(path)
    assert (watermark_of(lake), counted_rows(lake)) == before
    assert not has_waiting_rows(lake, DEVICES)

    # A batch that is repeated is found in the table, under all that has been done since.
    forget_newest_batch(lake, DEVICES)
    land(2)
    drain(SparkEngine(spark), lake, DEVICES)  # adds the rows of bronze up by the log's statistics
    assert counted_rows(lake) == counted_signals(landed, complete_until(lake, DEVICES.name))
    assert len(landed) == 12 > counted_rows(lake).total() > before[1].total()
