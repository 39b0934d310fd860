"""One hostile file never stops a source: it, or its rows, go to quarantine by name."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from include.lake.paths import Lake
from include.landing import landed_csv
from include.landing.ingest import ingest
from include.landing.parsed_batch import Parse
from include.settings import MIB
from tests.ingested import SIGNALS, quarantine_of
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    rows = len(next(iter(columns.values())))
    known = {"device_id": [1] * rows, "timestamp": [START.isoformat()] * rows, "value": [1] * rows}
    pq.write_table(pa.table({**known, **columns}), sink)
    return sink.getvalue()


def two_of_a_name() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["b", "b"])


AS_A_WHOLE = {
    "bomb.jsonl.gz": gzip.compress(b" " * MIB),
    "bomb.parquet": parquet(value=pa.array(["x" * MIB] * 100)),
    "ints.parquet": parquet(value=pa.array([7] * 2 * MIB)),
    "deep.json": b"[\n" + b"[" * 100_000,
    "nul.jsonl": b'{"device_id": "\0"}',
    "zip.csv": b"PK\x03\x04",
    "wide.csv": b"device_id,timestamp,value," + b"c," * 300_000,
    "recursive.avro": b"Obj\x01\x02\x16avro.schema\xff\xff\xff\xff\x0f",
    "empty.avro": b"",
    "\u00e9 name.txt": b"",
}
IN_PARTS = {
    "deep.jsonl": b"[" * 100_000 + b"\n" + b'{"a": ' * 10_000,
    "digits.jsonl": b'{"device_id": ' + b"9" * 10_000 + b"}",
    "deep_unknown.jsonl": json.dumps({**json.loads(signal(0)), "x": 0})
    .replace(": 0}", ": " + "[" * 500 + "]" * 500 + "}")
    .encode(),
    "exponent.jsonl": b'{"device_id": 1e999999999}',
    "rows.csv": b"device_id,timestamp,value,"
    + b",".join(b"c%d" % n for n in range(30_000))
    + b"\n"
    + b"1\n" * 2_000,
}
TAKEN = {
    "zone.parquet": parquet(other=pa.array([0], pa.timestamp("us", "No/Where"))),
    "names.parquet": parquet(other=two_of_a_name()),
    "half.jsonl": signal(0).replace("{", '{"x": "\\ud800", ', 1).encode(),
    "good.jsonl": signal(1).encode(),
}


@both_parsers
def test_a_hostile_file_goes_to_quarantine_alone(
    lake: Lake, landed: Landing, parse: Parse, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(landed_csv, "MAX_HEADER_COPIES", MIB)
    for name, content in {**AS_A_WHOLE, **IN_PARTS, **TAKEN}.items():
        landed.add(name, content)
    source = type(SIGNALS)(**{**vars(SIGNALS), "max_file_bytes": MIB // 2})

    ingest(lake, source, parse=parse)

    files = DeltaTable(lake.bronze("signals")).to_pyarrow_table()["source_file"].to_pylist()
    assert sorted(files) == sorted(TAKEN)
    refused = quarantine_of(lake)
    assert {r["source_file"] for r in refused if r["row_number"] == 0} == set(AS_A_WHOLE)
    assert {r["source_file"] for r in refused if r["row_number"] > 0} == set(IN_PARTS)
    assert all(row["reason"] for row in refused)
    assert sum(len(row["raw"] or "") for row in refused) < 70 * MIB
