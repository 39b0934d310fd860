"""One hostile file never stops a source: it, or its rows, go to quarantine by name."""

import gzip
import io
import json
import os
import socket
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.ingest import formats
from include.ingest.ingest import ingest
from include.ingest.parse_files import Parse
from include.ingest.source_connector import waiting
from include.lake.paths import Lake
from include.settings import MIB
from tests.ingested import SIGNALS, quarantine_of, values_of
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


# Odd names, links and files that grow


ODD_NAMES = (b"caf\xe9.jsonl", b"\\xff\xff.jsonl", b"\xff\xff.jsonl", b"\xfe/a.jsonl")


def refusals(lake: Lake) -> dict[str, str]:
    """The files that quarantine has as a whole, and why."""
    return {
        row["source_file"]: row["reason"] for row in quarantine_of(lake) if row["row_number"] == 0
    }


@both_parsers
def test_what_cannot_be_taken_is_refused_by_name_and_the_rest_is_taken(
    lake: Lake, landed: Landing, tmp_path: Path, parse: Parse
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_text(signal(5))
    landed.add("0.jsonl", [signal(0, value=1)])
    landed.add("in/1.jsonl", [signal(1, value=2)])
    for name in ODD_NAMES:
        path = landed.folder / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(signal(2))
    (landed.folder / "file.jsonl").symlink_to(outside / "secret.jsonl")
    (landed.folder / "folder").symlink_to(outside)
    (landed.folder / "round").symlink_to(".")
    (landed.folder / "nothing.jsonl").symlink_to("not here")
    os.mkfifo(landed.folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(landed.folder)
        server.bind("socket.jsonl")

    ingest(lake, SIGNALS, parse=parse)

    assert values_of(lake) == [("0.jsonl", 1), ("in/1.jsonl", 2)]
    found = refusals(lake)
    not_utf_8 = {"caf\\xe9.jsonl/", "\\xff\\xff.jsonl/", "\\xfe/a.jsonl/"}
    no_files = {"folder", "round", *(f"{n}.jsonl" for n in ("file", "nothing", "pipe", "socket"))}
    assert found.keys() == not_utf_8 | no_files
    assert waiting(lake, SIGNALS) == 0


def test_a_file_that_is_written_to_while_it_is_read_is_refused(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    path = landed.add("grows.jsonl", [signal(0)])
    landed.add("whole.jsonl", [signal(1)])
    stat = os.stat

    def write_before(asked: Any, **named: Any) -> os.stat_result:
        if asked == str(path):
            with path.open("a") as writer:
                writer.write(signal(9) + "\n")
        return stat(asked, **named)

    monkeypatch.setattr(os, "stat", write_before)
    ingest(lake, SIGNALS)
    assert [name for name, _ in values_of(lake)] == ["whole.jsonl"]
    assert "written to while it was read" in refusals(lake)["grows.jsonl"]
