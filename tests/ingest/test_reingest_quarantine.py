"""Refused rows come in again: corrected, allowed by now, or from a mended file; once."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.ingest.reingest import read_corrections, reingest
from include.ingest.watermark import SourceWatermark
from include.lake.paths import Lake
from include.settings import Field
from tests.ingested import SIGNALS, bronze_of, quarantine_of
from tests.landed_files import START, Landing, signal
from tests.refused import refused
from tests.watermarks import in_order, watermark_of

NOTHING = Counts()


def now() -> datetime:
    return datetime.now(UTC)


def open_rows(lake: Lake) -> dict[tuple[str, int], SimpleNamespace]:
    """The rows of quarantine that were not taken in, by where they stand in landing."""
    rows = [SimpleNamespace(**row) for row in quarantine_of(lake)]
    return {(r.source_file, r.row_number): r for r in rows if r.resolved_at is None}


def versions(lake: Lake) -> list[int]:
    tables = lake.bronze("signals"), lake.quarantine("signals")
    return [DeltaTable(path).version() for path in tables]


def sources_in_bronze(lake: Lake) -> list[str]:
    return sorted(row["source_file"] for row in bronze_of(lake))


def assert_rows_add_up(lake: Lake, counts: Counts) -> None:
    assert counts.rows_bronze == len(bronze_of(lake))
    assert counts.rows_quarantined == len(open_rows(lake))


def test_corrected_rows_come_in_and_the_others_stay_open(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0), signal(1, value="x"), "{", signal(2, value="y")])
    landed.add("b.csv", "device_id,timestamp,value\n1,2026-03-01T00:00:00Z,z\n")
    total = ingest(lake, SIGNALS)
    refused = open_rows(lake)
    still_wrong = signal(2, value=True)
    corrections = {
        refused["a.jsonl", 2].quarantine_id: signal(1, value=5),
        refused["a.jsonl", 4].quarantine_id: still_wrong,
        refused["b.csv", 1].quarantine_id: "device_id,timestamp,value\n1,2026-03-01T00:00:00Z,6",
    }

    counts = reingest(lake, SIGNALS, corrections, now())

    assert counts == Counts(batches=1, rows_bronze=2, rows_quarantined=-2)
    total += counts
    assert_rows_add_up(lake, total)
    left = open_rows(lake)
    assert set(left) == {("a.jsonl", 3), ("a.jsonl", 4)}
    assert left["a.jsonl", 3].reason == refused["a.jsonl", 3].reason
    assert left["a.jsonl", 4].reason == "value is true, expected bigint"
    assert left["a.jsonl", 4].raw == signal(2, value="y")
    assert left["a.jsonl", 4].correction == still_wrong
    names = [f"{row.source_file}#{row.quarantine_id}" for row in refused.values()]
    taken = [names[0], next(name for name in names if name.startswith("b.csv"))]
    assert sources_in_bronze(lake) == sorted(["a.jsonl", *taken])
    # Again: nothing is left to take in, so nothing is written.
    before = versions(lake)
    assert reingest(lake, SIGNALS, {}, now()) == NOTHING
    assert versions(lake) == before


def test_a_row_that_is_reingested_is_one_of_its_group(lake: Lake, landed: Landing):
    source = replace(SIGNALS, watermark_per="device_id")
    landed.add("a.jsonl", [signal(0, 1), signal(9, 2, value="x"), signal(5, 2)])
    ingest(lake, source)
    refused = open_rows(lake)["a.jsonl", 2].quarantine_id
    reingest(lake, source, {refused: signal(9, 2)}, now())
    clock = watermark_of(lake, source)
    assert clock.groups is not None
    ninth_us = micros_of(START + timedelta(seconds=9))
    assert clock.groups.of["2"] == (ninth_us, 0)


def test_rows_of_the_future_come_in_when_their_time_has_come(lake: Lake, landed: Landing):
    soon = now() + timedelta(hours=2)
    landed.add("a.jsonl", [signal(0)])
    total = ingest(lake, SIGNALS)
    before_us = watermark_of(lake).watermark_us
    row = {"device_id": 1, "value": 1, "timestamp": soon.isoformat()}
    landed.add("b.jsonl", [json.dumps(row)])
    total += ingest(lake, SIGNALS)
    assert [row.reason_code for row in open_rows(lake).values()] == ["future_time"]

    assert reingest(lake, SIGNALS, {}, now()) == NOTHING
    later = soon - timedelta(minutes=59)
    total += reingest(lake, SIGNALS, {}, later)

    assert_rows_add_up(lake, total)
    (found,) = (row for row in in_order(lake) if "#" in row.source_file)
    later_us = int(later.timestamp() * 1_000_000)
    assert abs(found.ingested_at - later_us) < 1000
    assert found.watermark_before == before_us
    assert found.watermark_after == found.ingested_at // 1000 * 1000
    assert watermark_of(lake) == SourceWatermark(found.watermark_after, found.ingested_at)


def test_a_mended_file_brings_its_rows_and_a_broken_one_stays(lake: Lake, landed: Landing):
    lines = [signal(0), "{", signal(1)]
    whole = gzip.compress("\n".join(lines).encode())
    landed.add("a.jsonl.gz", whole[:-5])
    landed.add("b.txt", b"x")
    landed.add("gone.txt", b"x").with_name("gone.txt")
    total = ingest(lake, SIGNALS)
    assert total == Counts(1, 3, 0, 3)
    landed.add("a.jsonl.gz", whole)
    (landed.folder / "gone.txt").unlink()

    counts = reingest(lake, SIGNALS, {}, now())

    assert counts == Counts(1, 0, 2, 0)  # two events, one refused row for the file
    total += counts
    assert_rows_add_up(lake, total)
    assert set(open_rows(lake)) == {("a.jsonl.gz", 2), ("b.txt", 0), ("gone.txt", 0)}
    assert len(set(sources_in_bronze(lake))) == 2
    total += reingest(lake, SIGNALS, {}, now())
    total += ingest(lake, SIGNALS)
    assert_rows_add_up(lake, total)


def test_a_wrong_correction_is_refused_before_anything_is_written(lake: Lake, landed: Landing):
    with refused("wrong_argument", subject="x"):
        reingest(lake, SIGNALS, {"x": "{}"}, now())
    landed.add("a.jsonl", ["{", "["])
    landed.add("b.txt", b"")
    ingest(lake, SIGNALS)
    found = open_rows(lake)
    first, second = (found["a.jsonl", number].quarantine_id for number in (1, 2))
    reingest(lake, SIGNALS, {first: signal(0)}, now())
    before = versions(lake)

    for key in ("x", first, found["b.txt", 0].quarantine_id):
        with refused("wrong_argument", subject=key):
            reingest(lake, SIGNALS, {second: signal(1), key: signal(2)}, now())
    assert versions(lake) == before


def corrections_in(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "corrections.jsonl"
    path.write_text(text)
    return read_corrections(path)


def typed(landed: Landing, name: str, values: list[Any]) -> None:
    times = [START + timedelta(seconds=number) for number in range(len(values))]
    columns = {
        "device_id": [1] * len(values),
        "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        "value": values,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    landed.add(name, bytes(sink.getvalue()))


def test_refused_rows_of_parquet_are_read_of_their_file_again(lake: Lake, landed: Landing):
    """What `raw` has of them looks like texts, which they are not."""
    days = [date(2026, 1, 1), None]
    typed(landed, "a.parquet", [*days, date(2026, 1, 2)])
    typed(landed, "b.parquet", days)
    typed(landed, "c.parquet", days)
    fields = [f for f in SIGNALS.fields if f.name != "value"]
    texts = Field(name="value", type="string", comment="It", required=False)
    source = replace(SIGNALS, fields=(*fields, texts))
    total = ingest(lake, source)
    assert (total.rows_bronze, total.rows_quarantined) == (3, 4)
    assert reingest(lake, source, {}, now()) == NOTHING
    ids = {row: each.quarantine_id for row, each in open_rows(lake).items()}
    rescued = replace(SIGNALS, fields=tuple(fields))
    typed(landed, "b.parquet", [None, *days])  # its first row is another by now
    (landed.folder / "c.parquet").unlink()
    total += reingest(lake, rescued, {}, now())
    assert_rows_add_up(lake, total)
    assert set(open_rows(lake)) == {("b.parquet", 1), ("c.parquet", 1)}
    correction = '{"device_id": 1, "timestamp": "2026-03-01T00:00:00Z"}'
    total += reingest(lake, rescued, {ids["c.parquet", 1]: correction}, now())
    assert_rows_add_up(lake, total)
    assert set(open_rows(lake)) == {("b.parquet", 1)}


def test_corrections_are_lines_of_id_and_text(tmp_path: Path):
    assert corrections_in(tmp_path, "") == {}
    text = '{"quarantine_id": "a", "raw": "{}"}\n\n{"quarantine_id": "b", "raw": "x\\ny"}\n'
    assert corrections_in(tmp_path, text) == {"a": "{}", "b": "x\ny"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"quarantine_id": "b"}',
        '{"quarantine_id": "b", "raw": {"value": 1}}',
        '{"quarantine_id": "a", "raw": ""}',
    ],
)
def test_a_wrong_line_of_corrections_is_named(tmp_path: Path, line: str):
    with refused("wrong_argument", subject="line 2"):
        corrections_in(tmp_path, f'{{"quarantine_id": "a", "raw": "x"}}\n{line}')


def test_a_missing_file_of_corrections_is_named(tmp_path: Path):
    with refused("wrong_argument"):
        read_corrections(tmp_path / "nowhere.jsonl")
