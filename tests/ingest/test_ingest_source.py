"""Ingestion of real files: counts to the row, watermarks, and what its tables are made of."""

import gzip
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from include.fold.admission import MICROSECOND
from include.ingest.bronze_tables import QUARANTINE_COLUMNS, bronze_columns
from include.ingest.ingest import ingest
from include.ingest.ingest_log import COLUMNS, Ingestion
from include.ingest.parse_files import Counts, Parse, ParsedHere
from include.ingest.source_connector import SLACK, jump_findings, waiting
from include.ingest.watermark import SourceWatermark
from include.lake.columns import documented
from include.lake.ops import read_ops
from include.lake.paths import Lake
from spark_jobs.tables.landing import ParsedOnSpark
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS, bronze_of, events_of, quarantine_of
from tests.landed_files import START, Landing, parquet, signal
from tests.parsers import both_parsers, both_parsers_at_length
from tests.refused import refused
from tests.watermarks import HEARTBEAT_DELAY, watermark_of
from tests.watermarks import SIGNALS as WITH_HEARTBEAT


def utc(*instants: datetime) -> pa.Array:
    return pa.array(instants, pa.timestamp("us", tz="UTC"))


def csv(*lines: str) -> str:
    return "\n".join(["device_id,timestamp,value", *lines])


@both_parsers
def test_rows_of_all_formats_come_into_bronze(lake: Lake, landed: Landing, parse: Parse):
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

    counts = ingest(lake, SIGNALS, parse=parse)

    assert counts == Counts(1, 6, 7, 0)
    us = int(START.timestamp()) * 1_000_000
    names = ["_e=f.jsonl", "_metadata.jsonl", *["a b+ü%20#?.jsonl"] * 2]
    names += ["c.csv", "d.parquet", "deep/er/b.jsonl.gz"]
    assert events_of(lake) == [(1, 10, us, START.date(), name) for name in names]
    assert waiting(lake, SIGNALS) == 0


@both_parsers_at_length
def test_the_tables_are_made_as_documented(lake: Lake, landed: Landing, parse: Parse):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(lake, SIGNALS, parse=parse)

    for path, columns in (
        (lake.bronze("signals"), bronze_columns(SIGNALS)),
        (lake.quarantine("signals"), QUARANTINE_COLUMNS),
        (lake.ingest_log("signals"), COLUMNS),
    ):
        found = pa.schema(DeltaTable(path).schema().to_arrow())
        assert found.equals(documented(columns), check_metadata=True)
        assert DeltaTable(path).metadata().description
    table = DeltaTable(lake.bronze("signals"))
    assert table.metadata().partition_columns == ["event_date"]
    assert table.metadata().configuration["delta.appendOnly"] == "true"
    assert table.metadata().configuration["delta.enableDeletionVectors"] == "false"
    assert len(table.file_uris()) == 1


@both_parsers_at_length
def test_a_field_may_have_the_name_of_a_column_of_quarantine(
    lake: Lake, landed: Landing, parse: Parse
):
    fields = tuple(replace(SIGNALS.fields[1], name=name) for name in ("raw", "kind"))
    row = {"raw": 1, "kind": 2, "timestamp": START.isoformat()}
    landed.add("a.jsonl", [json.dumps(row), "{"])
    assert ingest(lake, replace(SIGNALS, fields=fields), parse=parse).rows_quarantined == 1
    assert [(row["raw"], row["kind"]) for row in bronze_of(lake)] == [(1, 2)]


BAD_ROWS = {
    "not_json": "{",
    "not_an_object": "[1]",
    "missing_field": '{"device_id": 1, "timestamp": "2026-03-01T00:00:00Z"}',
    "wrong_type": signal(0, value="abc"),
    "unreadable_time": '{"device_id": 1, "value": 1, "timestamp": "2026-03-01T00:00:00"}',
    "future_time": '{"device_id": 1, "value": 1, "timestamp": "9999-01-01T00:00:00Z"}',
}


@both_parsers
def test_a_folder_of_bad_rows_adds_up_to_the_row(lake: Lake, landed: Landing, parse: Parse):
    landed.add("good.jsonl", [signal(i) for i in range(7)])
    landed.add("rows.jsonl", [signal(8), *BAD_ROWS.values(), signal(9)])
    landed.add(
        "rows.csv",
        csv("1,2026-03-01T00:00:00Z,x", "1,2026-03-01T00:00:00Z", "2,2026-03-01T00:00:00Z,3"),
    )
    landed.add("empty.jsonl", b"")
    landed.add("notes.txt", b"hello")

    counts = ingest(lake, SIGNALS, parse=parse)

    assert counts == Counts(1, 5, 7 + 2 + 1, 6 + 2 + 1)
    assert len(bronze_of(lake)) == counts.rows_bronze
    refused = quarantine_of(lake)
    whole = [row for row in refused if row["reason_code"] == "unreadable_file"]
    (told,) = ((row["source_file"], row["row_number"], row["raw"]) for row in whole)
    assert told == ("notes.txt", 0, None)
    rows = [row for row in refused if row not in whole]
    of_lines = [row for row in rows if row["source_file"] == "rows.jsonl"]
    assert {row["reason_code"]: row["raw"] for row in of_lines} == BAD_ROWS
    of_csv = [row for row in rows if row["source_file"] == "rows.csv"]
    assert [(row["reason_code"], row["row_number"], row["raw"]) for row in of_csv] == [
        ("wrong_type", 1, "device_id,timestamp,value\n1,2026-03-01T00:00:00Z,x"),
        ("not_csv", 2, "device_id,timestamp,value\n1,2026-03-01T00:00:00Z"),
    ]
    assert len({row["quarantine_id"] for row in refused}) == len(refused)
    assert all(row["ingested_at"] and row["resolved_at"] is None for row in refused)


def test_bronze_is_compressed_and_in_groups_that_several_cores_can_read(lake, monkeypatch):
    monkeypatch.setattr("include.lake.table.ROWS_A_GROUP", 2)
    Landing(lake).add("a.json", [signal(second) for second in range(5)])
    ingest(lake, SIGNALS)
    (file,) = DeltaTable(lake.bronze("signals")).file_uris()
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [2, 2, 1]
    assert {group.column(0).compression for group in groups} == {"SNAPPY"}


@both_parsers_at_length
@pytest.mark.parametrize("lines", [[signal(0), signal(1)], ["{", "["]])
def test_rows_that_are_lost_on_their_way_into_a_file_stop_the_run_before_any_is_taken(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch, parse: Parse, lines: list[str]
):
    """So those are noticed that Spark's workers lose."""
    landed.add("a.jsonl", lines)
    for parsed in (ParsedHere, ParsedOnSpark):
        for name in ("stage_accepted", "stage_refused"):
            monkeypatch.setattr(parsed, name, lambda *_: [])
    record: dict[str, Any] = {}
    with refused("rows_do_not_add_up"):
        ingest(lake, SIGNALS, record, parse=parse)
    assert record == Counts().of_run()
    assert waiting(lake, SIGNALS) == 1


# Findings


WELL = [signal(number) for number in range(8)]


def found_in(lake: Lake) -> list[dict[str, Any]]:
    return read_ops(lake, "findings", {"finding": "rows_quarantined"}).to_pylist()


@pytest.mark.parametrize(
    ("lines", "share", "findings"),
    [("{[", 0.2, 0), ("{[", 0.19, 1), ("{[", 0, 1), ("{[", 1, 0), ("", 1, 1)],
)
def test_it_is_told_above_the_share_that_the_source_says_or_of_a_whole_file(
    lake: Lake, landed: Landing, lines: str, share: float, findings: int
):
    landed.add("a.jsonl", [*WELL, *lines])
    if not lines:
        landed.add("b.parquet", "no Parquet")
    ingest(lake, replace(SIGNALS, max_quarantined=share))
    found = found_in(lake)
    assert len(found) == findings
    for each in found:
        assert (each["severity"], each["limit"]) == ("warning", share)
        assert each["count"] == len(quarantine_of(lake)) == (len(lines) or 1)
        assert each["figure"] == each["count"] / (len(WELL) + each["count"])


def test_who_dies_before_the_rows_are_taken_has_told_of_them(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", ["{", *WELL])
    with monkeypatch.context() as patch:
        patch.setattr(Ingestion, "commit", die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)
    assert quarantine_of(lake) == []
    assert [told["count"] for told in found_in(lake)] == [1]


# The watermark

HOUR_US = timedelta(hours=1) // MICROSECOND
MOST_US = (WITH_HEARTBEAT.max_future + SLACK) // MICROSECOND


def is_jump(newest: dict[str, int], passed_us: int = 0) -> bool:
    """Return True if a commit of files with these newest times, after the watermark before, jumps."""
    after = SourceWatermark(max(newest.values()), passed_us)
    return bool(jump_findings(WITH_HEARTBEAT, newest, SourceWatermark(0, 0), after))


def test_a_jump_is_what_goes_beyond_time_and_the_other_files():
    assert not is_jump({"a": MOST_US})
    assert is_jump({"a": MOST_US + 1})
    assert not is_jump({"a": MOST_US + 1}, passed_us=1)
    assert not is_jump({"a": 9 * HOUR_US, "b": 8 * HOUR_US})
    assert is_jump({"a": 9 * HOUR_US, "b": HOUR_US})
    assert is_jump({"b": -9 * HOUR_US, "a": 9 * HOUR_US})


@both_parsers_at_length
def test_a_run_tells_of_the_file_that_moved_the_watermark(lake: Lake, parse: Parse):
    landed = Landing(lake)
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)  # the first rows move it from nowhere
    landed.add("b.jsonl", [signal(60), "{"])
    landed.add("wrong.jsonl", [signal(61), signal(40 * 24 * 3600)])
    landed.add("z.txt", "")
    ingest(lake, SIGNALS, parse=parse)
    (found,) = read_ops(lake, "findings", {"finding": "watermark_jumped"}).to_pylist()
    assert found["subject"] == "signals"
    assert "wrong.jsonl" in found["detail"]


def test_a_wrong_clock_moves_the_watermark_by_one_step(lake: Lake):
    source = replace(WITH_HEARTBEAT, max_clock_step=timedelta(days=2))
    Landing(lake).add("a.jsonl", [signal(0)])
    ingest(lake, source, interval_end=START)
    far: datetime = START + timedelta(days=30)  # it is long past that now
    for run in (1, 2):
        ingest(lake, source, interval_end=far)
        reached = watermark_of(lake).watermark_us
        assert reached == (START + run * source.max_clock_step).timestamp() * 1_000_000
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found] == ["heartbeat_bounded"] * 2
    assert source.max_clock_step > HEARTBEAT_DELAY
