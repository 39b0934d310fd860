"""The ingest job on real files: counts to the row, watermarks, and repeated batches."""

import gzip
import io
import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from include.lake.paths import Lake
from include.landing.bronze_tables import QUARANTINE_COLUMNS, bronze_columns, create_tables
from include.landing.clock import Clock
from include.landing.position import files_waiting
from include.settings import SettingsError
from spark_jobs import ingest_source
from spark_jobs.ingest_source import RunCounts, ingest
from spark_jobs.tables import bronze, landing
from tests.ingested import SIGNALS, bronze_of, events_of, one_file_a_commit, quarantine_of
from tests.landed_files import START, Landing, signal

pytestmark = pytest.mark.spark


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def utc(*instants: datetime) -> pa.Array:
    return pa.array(instants, pa.timestamp("us", tz="UTC"))


def csv(*lines: str) -> str:
    return "\n".join(["device_id,timestamp,value", *lines])


def test_rows_of_all_formats_come_into_bronze(spark: SparkSession, lake: Lake, landed: Landing):
    line = signal(0)
    landed.add("a b+ü%20#?.jsonl", [line, "", line])
    landed.add("deep/er/b.jsonl.gz", gzip.compress(line.encode()))
    landed.add("c.csv", csv("1,2026-03-01T00:00:00Z,10", ""))
    landed.add(
        "d.parquet", parquet(device_id=pa.array([1]), value=pa.array([10]), timestamp=utc(START))
    )
    landed.add("_e=f.jsonl", [line])
    landed.add("_metadata.jsonl", [line])  # not hidden, by Hadoop's rule
    for hidden in ("_e.jsonl", ".f.jsonl", "_g/h.jsonl", "i/.j/k.jsonl", "l.jsonl._COPYING_"):
        landed.add(hidden, [line])

    counts = ingest(spark, lake, SIGNALS)

    assert counts == RunCounts(1, 6, 7, 7, 0)
    us = int(START.timestamp()) * 1_000_000
    names = ["_e=f.jsonl", "_metadata.jsonl", *["a b+ü%20#?.jsonl"] * 2]
    names += ["c.csv", "d.parquet", "deep/er/b.jsonl.gz"]
    assert events_of(spark, lake) == [(1, 10, us, START.date(), name) for name in names]
    assert files_waiting(lake, "signals") == 0


def test_the_tables_are_made_as_documented(spark: SparkSession, lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(spark, lake, SIGNALS)

    for path, columns in (
        (lake.bronze("signals"), bronze_columns(SIGNALS)),
        (lake.quarantine("signals"), QUARANTINE_COLUMNS),
    ):
        fields = spark.read.format("delta").load(path).schema.fields
        found = [(f.name, f.dataType.simpleString(), f.metadata.get("comment")) for f in fields]
        assert found == [(c.name, c.type, c.comment) for c in columns]
        assert DeltaTable(path).metadata().description
    table = DeltaTable(lake.bronze("signals"))
    assert table.metadata().partition_columns == ["event_date"]
    assert table.metadata().configuration["delta.appendOnly"] == "true"
    assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert len(table.file_uris()) == 1


def test_a_field_may_not_take_the_name_of_a_column_of_bronze():
    field = replace(SIGNALS.fields[0], name="ingested_at")
    with pytest.raises(SettingsError, match="a column ingested_at"):
        bronze_columns(replace(SIGNALS, fields=(field,)))


@pytest.mark.full
def test_a_field_may_have_the_name_of_a_column_of_quarantine(
    spark: SparkSession, lake: Lake, landed: Landing
):
    fields = tuple(replace(SIGNALS.fields[1], name=name) for name in ("raw", "kind"))
    row = {"raw": 1, "kind": 2, "timestamp": START.isoformat()}
    landed.add("a.jsonl", [json.dumps(row), "{"])
    assert ingest(spark, lake, replace(SIGNALS, fields=fields)).rows_quarantined == 1
    found = bronze_of(spark, lake).select("raw", "kind").collect()
    assert [tuple(row) for row in found] == [(1, 2)]


BAD_ROWS = {
    "not_json": "{",
    "not_an_object": "[1]",
    "missing_field": '{"device_id": 1, "timestamp": "2026-03-01T00:00:00Z"}',
    "wrong_type": signal(0, value="abc"),
    "unreadable_time": '{"device_id": 1, "value": 1, "timestamp": "2026-03-01T00:00:00"}',
    "future_time": '{"device_id": 1, "value": 1, "timestamp": "9999-01-01T00:00:00Z"}',
}


def bad_files() -> dict[str, bytes]:
    lines = "\n".join([signal(0)] * 500).encode()
    return {
        "truncated.jsonl.gz": gzip.compress(lines)[:-10],
        "rubbish.jsonl.gz": lines,
        "rubbish.jsonl": bytes(range(256)),
        "latin1.jsonl": '{"message": "é"}'.encode("latin-1"),
        "cut.parquet": parquet(device_id=pa.array([1]))[:-5],
        "columns.parquet": parquet(device_id=pa.array([1])),
        "rubbish.parquet": b"PAR1" + bytes(100) + b"PAR1",
        "columns.csv": b"device_id,value\n1,2\n",
        "empty.csv": b"",
        "quote.csv": b'device_id,timestamp,value\n"1,2,3\n',
        "notes.txt": b"hello",
        "large.jsonl": b" " * 100_000 + b"\n" + lines,
        "bomb.jsonl.gz": gzip.compress(b"\n" * 200_000),
    }


def test_a_folder_of_bad_files_adds_up_to_the_row(spark: SparkSession, lake: Lake, landed: Landing):
    source = replace(SIGNALS, max_file_bytes=100_000)
    landed.add("good.jsonl", [signal(i) for i in range(7)])
    landed.add("rows.jsonl", [signal(8), *BAD_ROWS.values(), signal(9)])
    landed.add(
        "rows.csv",
        csv("1,2026-03-01T00:00:00Z,x", "1,2026-03-01T00:00:00Z", "2,2026-03-01T00:00:00Z,3"),
    )
    landed.add("empty.jsonl", b"")
    for name, content in bad_files().items():
        landed.add(name, content)

    counts = ingest(spark, lake, source)

    bad = len(bad_files())
    assert counts == RunCounts(1, 4 + bad, 7 + 8 + 3 + bad, 7 + 2 + 1, 6 + 2 + bad)
    assert bronze_of(spark, lake).count() == counts.rows_bronze
    refused = quarantine_of(spark, lake).orderBy("source_file", "row_number").collect()
    whole = {row.source_file: row for row in refused if row.reason_code == "unreadable_file"}
    assert set(whole) == set(bad_files())
    assert all(row.raw is None and row.row_number == 0 and row.reason for row in whole.values())
    rows = [row for row in refused if row.reason_code != "unreadable_file"]
    assert {r.reason_code: r.raw for r in rows if r.source_file == "rows.jsonl"} == BAD_ROWS
    assert [(r.reason_code, r.row_number, r.raw) for r in rows if r.source_file == "rows.csv"] == [
        ("wrong_type", 1, "device_id,timestamp,value\n1,2026-03-01T00:00:00Z,x"),
        ("not_csv", 2, "device_id,timestamp,value\n1,2026-03-01T00:00:00Z"),
    ]
    assert len({row.quarantine_id for row in refused}) == len(refused)
    assert all(row.ingested_at and row.resolved_at is None for row in refused)


def test_a_run_with_nothing_new_changes_nothing(spark: SparkSession, lake: Lake, landed: Landing):
    assert ingest(spark, lake, SIGNALS) == RunCounts()  # no landing folder yet
    landed.add("a.jsonl", [signal(0)])
    assert files_waiting(lake, "signals") == 1
    ingest(spark, lake, SIGNALS)
    before = DeltaTable(lake.bronze("signals")).version()
    assert ingest(spark, lake, SIGNALS) == RunCounts()
    assert DeltaTable(lake.bronze("signals")).version() == before


def test_a_batch_without_events_makes_no_bronze_commit(
    spark: SparkSession, lake: Lake, landed: Landing
):
    landed.add("a.jsonl", ["{", "{"])
    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 2, 0, 2)
    assert DeltaTable(lake.bronze("signals")).version() == 0


def watermarks(spark: SparkSession, lake: Lake) -> dict[str, tuple[Any, Any]]:
    columns = ["source_file", F.unix_micros("arrival_watermark"), F.unix_micros("commit_watermark")]
    rows = bronze_of(spark, lake).select(*columns).distinct().collect()
    assert len(rows) == len({row[0] for row in rows})
    return {row[0]: (row[1], row[2]) for row in rows}


def test_watermarks_follow_the_commits_and_never_fall(
    spark: SparkSession, lake: Lake, landed: Landing
):
    rng = random.Random(5)
    commits = [[rng.uniform(0, 5000) for _ in range(3)] for _ in range(4)] + [[-7e8 - 0.0001]]
    expected: dict[str, tuple[Any, Any]] = {}
    newest = None
    for number, seconds in enumerate(commits):
        landed.add(f"{number}.jsonl", [signal(second) for second in seconds])
        latest = START + timedelta(seconds=max(seconds))
        floored = (latest - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) * 1000
        after = floored if newest is None else max(newest, floored)
        expected[f"{number}.jsonl"] = (newest, after)
        newest = after
        if number in (1, 4):  # commits 0 and 1 in one run, the others in the next
            ingest(spark, lake, one_file_a_commit())
    assert watermarks(spark, lake) == expected


def test_an_allowed_event_of_the_future_raises_the_watermark_to_its_ingestion_only(
    spark: SparkSession, lake: Lake, landed: Landing
):
    soon = (datetime.now(UTC) + timedelta(minutes=30)).isoformat()
    landed.add("a.jsonl", [json.dumps({"device_id": 1, "value": 1, "timestamp": soon})])
    assert ingest(spark, lake, SIGNALS).rows_bronze == 1
    row = bronze_of(spark, lake).collect()[0]
    assert row.event_time > row.ingested_at
    assert row.commit_watermark == row.ingested_at
    assert row.arrival_watermark is None


def test_the_clock_is_found_without_the_commit_metadata(
    spark: SparkSession, lake: Lake, landed: Landing
):
    read = bronze.read_clock
    create_tables(lake, SIGNALS)
    assert read(spark, lake, SIGNALS) == Clock(None, None)
    landed.add("a.jsonl", [signal(1.5)])
    ingest(spark, lake, SIGNALS)
    from_log = read(spark, lake, SIGNALS)
    spark.sql(f"OPTIMIZE delta.`{lake.bronze('signals')}`")
    assert read(spark, lake, SIGNALS) == from_log
    second = F.expr("INTERVAL 1 SECOND")
    by_hand = bronze_of(spark, lake).withColumns(
        {name: F.col(name) + second for name in ("commit_watermark", "ingested_at")}
    )
    by_hand.write.format("delta").mode("append").save(lake.bronze("signals"))
    assert read(spark, lake, SIGNALS) == tuple(micros + 1_000_000 for micros in from_log)


def test_parsed_rows_that_do_not_add_up_stop_the_run(spark: SparkSession):
    schema = landing.ddl({"kind": "string", "rows_in_file": "bigint", "event_time_us": "bigint"})
    rows = [(landing.FILE, 2, None), (landing.ACCEPTED, None, 0)]
    parsed = spark.createDataFrame(rows, schema)
    with pytest.raises(ingest_source.RowsLostError, match="2 rows landed"):
        ingest_source.summarize(parsed, 1)
    with pytest.raises(ingest_source.RowsLostError, match="1 of 2 files"):
        ingest_source.summarize(parsed, 2)
