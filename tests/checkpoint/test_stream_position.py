"""The decision to start no JVM: wrong in one direction it loses hours, in the other money."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.checkpoint.committed_batch import (
    is_settled,
    refuse_damaged_batch,
    settled_watermark_ms,
)
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.landing.clock import STILL_KEY
from include.plans.open_stream import has_waiting_rows
from include.registry import stream_named
from tests.refused import refused

STREAM = stream_named("user_counts")


@pytest.fixture(autouse=True)
def table(lake: Lake) -> None:
    """A run makes the stream's table before its first batch."""
    DeltaTable.create(lake.table(STREAM.name), pa.schema([("n", pa.int64())]))


def append_bronze(lake: Lake, rows: int = 2) -> DeltaTable:
    path = lake.bronze(STREAM.source)
    write_deltalake(path, pa.table({"n": list(range(rows))}), mode="append")
    return DeltaTable(path)


def write_batch(lake: Lake, batch: int, table: DeltaTable, next_version: int) -> Path:
    """The offset log as Spark and Delta write it; batch `batch` is not committed yet."""
    checkpoint = Path(lake.checkpoint(STREAM.name, 1))
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    offset = {
        "sourceVersion": 1,
        "reservoirId": str(table.metadata().id),
        "reservoirVersion": next_version,
        "index": -1,
        "isStartingVersion": False,
    }
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(offset)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    # Hadoop's checksum beside it, as on any local disk.
    (checkpoint / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    return checkpoint


def commit_batch(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_nothing_waits_before_the_first_ingest(lake):
    assert not has_waiting_rows(lake, STREAM)


def test_an_empty_bronze_table_holds_nothing(lake):
    DeltaTable.create(lake.bronze(STREAM.source), pa.schema([("n", pa.int64())]))
    assert not has_waiting_rows(lake, STREAM)


def test_bronze_waits_for_a_stream_that_never_ran(lake):
    append_bronze(lake)
    assert has_waiting_rows(lake, STREAM)


def test_nothing_waits_after_a_committed_batch_took_the_newest_version(lake):
    table = append_bronze(lake)
    commit_batch(write_batch(lake, 0, table, next_version=1), 0)
    assert not has_waiting_rows(lake, STREAM)


def test_the_newest_batch_counts_and_numbers_are_not_sorted_as_text(lake):
    table = append_bronze(lake)
    for batch, version in ((9, 0), (10, 1)):
        commit_batch(write_batch(lake, batch, table, version), batch)
    assert not has_waiting_rows(lake, STREAM)


def test_a_later_commit_waits(lake):
    table = append_bronze(lake)
    commit_batch(write_batch(lake, 0, table, next_version=1), 0)
    append_bronze(lake)
    assert has_waiting_rows(lake, STREAM)


def test_a_batch_that_was_never_committed_waits(lake):
    table = append_bronze(lake)
    write_batch(lake, 0, table, next_version=1)
    assert has_waiting_rows(lake, STREAM)


def test_optimize_adds_nothing_to_read(lake):
    append_bronze(lake)
    table = append_bronze(lake)
    commit_batch(write_batch(lake, 0, table, next_version=2), 0)
    table.optimize.compact()
    assert DeltaTable(lake.bronze(STREAM.source)).version() == 2
    assert not has_waiting_rows(lake, STREAM)


def test_a_clock_row_that_moves_nothing_is_worth_no_run_and_one_that_moves_is(lake):
    table = append_bronze(lake)
    commit_batch(write_batch(lake, 0, table, next_version=1), 0)
    for metadata, waits in (({STILL_KEY: True}, False), ({"clock": True}, True)):
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)})
        path = lake.bronze(STREAM.source)
        write_deltalake(path, pa.table({"n": [1]}), mode="append", commit_properties=properties)
        assert has_waiting_rows(lake, STREAM) == waits


def test_a_run_is_settled_when_its_last_batch_left_no_watermark_for_the_next(lake):
    table = append_bronze(lake)
    path = lake.checkpoint(STREAM.name, 1)
    assert is_settled(lake, path)
    checkpoint = write_batch(lake, 0, table, 1)
    commit = checkpoint / "commits" / "0"
    for next_watermark, settled in ((7, False), (0, True)):
        commit.write_text(f'v1\n{{"nextBatchWatermarkMs":{next_watermark}}}')
        assert is_settled(lake, path) == settled


def test_a_bronze_table_made_anew_is_left_to_the_run_to_refuse(lake):
    table = append_bronze(lake)
    checkpoint = write_batch(lake, 0, table, next_version=1)
    commit_batch(checkpoint, 0)
    offsets = checkpoint / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace(str(table.metadata().id), "another"))
    assert has_waiting_rows(lake, STREAM)


def test_an_offset_log_of_another_source_is_named(lake):
    table = append_bronze(lake)
    checkpoint = write_batch(lake, 0, table, next_version=1)
    commit_batch(checkpoint, 0)
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"logOffset":3}')
    with refused("unreadable_checkpoint", subject="checkpoints/user_counts"):
        has_waiting_rows(lake, STREAM)


@pytest.mark.spark
@pytest.mark.e2e
def test_the_offset_log_that_spark_writes_is_understood(spark, lake):
    bronze = lake.bronze(STREAM.source)
    checkpoint = lake.checkpoint(STREAM.name, 1)

    def drain() -> None:
        rows = spark.readStream.format("delta").load(bronze)
        writer = rows.writeStream.format("delta").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(lake.table("copy")).awaitTermination()

    seen = []
    for _ in range(2):
        spark.range(3).write.format("delta").mode("append").save(bronze)
        seen.append(has_waiting_rows(lake, STREAM))
        drain()
        seen.append(has_waiting_rows(lake, STREAM))
    assert seen == [True, False, True, False]


def test_a_run_that_died_before_it_was_recorded_is_run_again(lake):
    table = append_bronze(lake)
    commit_batch(write_batch(lake, 0, table, table.version() + 1), 0)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    batch = {"stream": STREAM.name, "generation": 1, "batch_id": 0, "committed_at": now}
    append_ops(lake, "batches", [batch])
    assert has_waiting_rows(lake, STREAM)

    run = {"job": "run_stream", "subject": STREAM.name, "ended_at": now + timedelta(seconds=1)}
    append_ops(lake, "runs", [run | {"outcome": "failed"}])
    assert has_waiting_rows(lake, STREAM)
    append_ops(lake, "runs", [run | {"outcome": "succeeded"}])
    assert not has_waiting_rows(lake, STREAM)


def test_what_is_settled_is_the_watermark_of_the_newest_committed_batch(lake):
    table = append_bronze(lake)
    path = lake.checkpoint(STREAM.name, 1)
    assert settled_watermark_ms(lake, path) is None
    checkpoint = write_batch(lake, 0, table, 1)
    commit_batch(checkpoint, 0)
    assert settled_watermark_ms(lake, path) is None  # 0 is Spark's "none yet"
    write_batch(lake, 1, table, 1)
    offsets = checkpoint / "offsets" / "1"
    offsets.write_text(offsets.read_text().replace(": 0}", ": 7}", 1))
    assert settled_watermark_ms(lake, path) is None
    commit_batch(checkpoint, 1)
    assert settled_watermark_ms(lake, path) == 7


def test_a_damaged_checkpoint_names_the_whole_command_that_makes_another(lake):
    path = write_batch(lake, 0, append_bronze(lake), next_version=1)
    commit_batch(path, 0)
    (path / "offsets" / "0").write_text("v1\n")
    with refused("unreadable_checkpoint", command="./stateful reseed user_counts --apply"):
        settled_watermark_ms(lake, str(path))


def test_a_commit_that_names_no_watermark_is_refused_as_spark_would_take_it_for_none(lake):
    checkpoint = write_batch(lake, 0, append_bronze(lake), next_version=1)
    refuse_damaged_batch(lake, lake.checkpoint(STREAM.name, 1))  # nothing is committed
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMr":7}')
    with refused("unreadable_checkpoint", command="./stateful reseed user_counts --apply"):
        refuse_damaged_batch(lake, lake.checkpoint(STREAM.name, 1))
    (checkpoint / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":7}')
    refuse_damaged_batch(lake, lake.checkpoint(STREAM.name, 1))
