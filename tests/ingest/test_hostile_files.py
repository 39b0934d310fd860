"""One hostile file never stops a source: it, or its rows, go to quarantine by name."""

import gzip
import io
import json

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.ingest import formats
from include.ingest.ingest import ingest
from include.ingest.parse_files import Parse
from include.lake.paths import Lake
from include.settings import MIB
from tests.ingested import SIGNALS, quarantine_of
from tests.landed_files import START, Landing, parquet, signal
from tests.parsers import both_parsers


def signals(**columns: pa.Array) -> bytes:
    rows = max(map(len, columns.values()), default=1)
    known = {"device_id": [1] * rows, "timestamp": [START.isoformat()] * rows, "value": [1] * rows}
    return parquet(**{**known, **columns})


def two_of_a_name() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["b", "b"])


def avro(schema: object, records: list[object], codec: str = "null") -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec=codec)
    return sink.getvalue()


def nested(levels: int) -> object:
    kind: object = "long"
    for level in range(levels):
        fields = [{"name": "f", "type": kind}]
        kind = {"type": "record", "name": f"r{level}", "fields": fields}
    return kind


def with_flipped_pages() -> bytes:
    """A Parquet file whose header and footer are whole, and whose pages are not."""
    whole = signals(value=pa.array(range(50_000)))
    return whole[:8] + bytes(byte ^ 0xFF for byte in whole[8:20_000]) + whole[20_000:]


def with_required_columns() -> bytes:
    """A Parquet file whose schema is not that of its columns: PyArrow ends the process over it."""
    whole = signals()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    optional, required = b"\x25\x02", b"\x25\x00"  # a field's repetition, as Thrift writes it
    return whole[:footer] + whole[footer:].replace(optional, required)


def record_of(value: object) -> object:
    names = {"device_id": "long", "timestamp": "string", "value": value}
    fields = [{"name": name, "type": kind} for name, kind in names.items()]
    return {"type": "record", "name": "r", "fields": fields}


EVENT = {"device_id": 1, "timestamp": START.isoformat()}

LINES = "\n".join([signal(0)] * 500).encode()
AS_A_WHOLE = {
    "truncated.jsonl.gz": gzip.compress(LINES)[:-10],
    "rubbish.jsonl.gz": LINES,
    "behind.jsonl.gz": gzip.compress(LINES) + b"rubbish",
    "rubbish.jsonl": bytes(range(256)),
    "latin1.jsonl": '{"message": "é"}'.encode("latin-1"),
    "rubbish.parquet": b"PAR1" + bytes(100) + b"PAR1",
    "columns.csv": b"device_id,value\n1,2\n",
    "notes.txt": b"hello",
    "members.csv.gz": gzip.compress(b"\n" * MIB) * 3,
    "bomb.avro": avro(record_of("string"), [EVENT | {"value": "x" * MIB}], "deflate"),
    "deep.avro": avro(nested(200), []),
    "one_line.json": b'{"device_id": "' + b"x" * MIB,
    "pages.parquet": with_flipped_pages(),
    "levels.parquet": with_required_columns(),
    "cut.parquet": signals()[:-100],
    "quote.csv": b'device_id,timestamp,value\n1,"2026-03-01T00:00:00Z,1\n' + b"2,3,4\n" * 999,
    "nul.csv": b"device_id,timestamp,value\n1,\0,2\n",
    "never_ends.json": b"[" + b'{"device_id": 1}, ' * 9_999,
    "bomb.jsonl.gz": gzip.compress(b" " * MIB),
    "bomb.parquet": signals(value=pa.array(["x" * MIB] * 100)),
    "ints.parquet": signals(value=pa.array([7] * 2 * MIB)),
    "deep.json": b"[\n" + b"[" * 100_000,
    "deep.jsonl": b"[" * 100_000 + b"\n" + b'{"a": ' * 10_000,
    "nul.jsonl": b'{"device_id": "\0"}',
    "zip.csv": b"PK\x03\x04",
    "wide.csv": b"device_id,timestamp,value," + b"c," * 300_000,
    "recursive.avro": b"Obj\x01\x02\x16avro.schema\xff\xff\xff\xff\x0f",
    "empty.avro": b"",
    "\u00e9 name.txt": b"",
}
IN_PARTS = {
    "long_line.jsonl": b'{"device_id": "' + b"x" * (MIB // 3) + b'"}',
    "escaped_nul.jsonl": signal(0, device_id="\0").encode(),
    "half_key.jsonl": signal(0, device_id="\ud800").encode(),
    "million.jsonl": b'{"device_id": ' + b"9" * (MIB // 3) + b"}",
    "million.csv": b"device_id,timestamp,value\n"
    + b"9" * (MIB // 3)
    + b",2026-03-01T00:00:00Z,1\n",
    "digits.jsonl": b'{"device_id": ' + b"9" * 10_000 + b"}",
    "deep_unknown.jsonl": json.dumps({**json.loads(signal(0)), "x": 0})
    .replace(": 0}", ": " + "[" * 500 + "]" * 500 + "}")
    .encode(),
    "exponent.jsonl": b'{"device_id": 1e999999999}',
    # Of what is no field numbers are kept exactly: this one is none of Python's.
    "exponent_unknown.jsonl": signal(0).replace("{", '{"x": 1e' + "9" * 99 + ", ", 1).encode(),
    "rows.csv": b"device_id,timestamp,value,"
    + b",".join(b"c%d" % n for n in range(30_000))
    + b"\n"
    + b"1\n" * 2_000,
}
TAKEN = {
    "zone.parquet": signals(other=pa.array([0], pa.timestamp("us", "No/Where"))),
    "names.parquet": signals(other=two_of_a_name()),
    "half.jsonl": signal(0).replace("{", '{"x": "\\ud800", ', 1).encode(),
    "good.jsonl": signal(1).encode(),
}


@both_parsers
def test_a_hostile_file_goes_to_quarantine_alone(
    lake: Lake, landed: Landing, parse: Parse, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(formats, "MAX_HEADER_COPIES", MIB)
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
