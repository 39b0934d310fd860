"""Valid files of each format, with some of their bytes changed: what becomes of their rows."""

import gzip
import io
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from include.ingest.formats import open_rows, row_of_raw
from include.ingest.landed_values import RefusedError
from include.ingest.parse_files import (
    FILE,
    REFUSED,
    WHOLE_FILE,
    in_batches,
    outcome_schema,
    outcomes_of_content,
)
from include.settings import MIB, Field, Source

AT = "2026-03-01T12:00:00Z"
INGESTED_US = 1_772_366_400_000_000
KINDS = {
    "number": "bigint",
    "text": "string",
    "price": "decimal(10,2)",
    "ratio": "double",
    "is_on": "boolean",
    "seen": "timestamp",
    "day": "date",
    "bytes": "binary",
    "items": "array<struct<name: string, count: int>>",
    "tags": "map<string, bigint>",
}
# Whatever a file says of itself, more than this it does not unpack to.
MOST_BYTES = MIB
SOURCE = Source(
    name="things",
    time_field="at",
    comment="Things",
    fields=tuple(
        Field(name=name, type=kind, comment="It", required=False) for name, kind in KINDS.items()
    ),
    max_file_bytes=MOST_BYTES,
)
ROWS = 5
# What a file of a few kilobytes may take: its text, values and Arrow's own buffers.
MOST_MEMORY = 96 * MIB


def _json_rows() -> list[str]:
    return [
        f'{{"at": "{AT}", "number": {n}, "text": "tëxt {n}", "price": {n}.25, "ratio": 1e{n}, '
        f'"is_on": true, "seen": "{AT}", "day": "2026-03-0{n + 1}", "bytes": "AAA=", '
        f'"items": [{{"name": "a", "count": {n}}}], "tags": {{"a": {n}}}, "more": [{n}]}}'
        for n in range(ROWS)
    ]


def _csv() -> str:
    rows = [
        f'{AT},{n},"t ""{n}""",{n}.25,0.{n},true,{AT},2026-03-01,AAA=,"[{{""count"": 1}}]","{{}}"'
        for n in range(ROWS)
    ]
    return "\n".join([",".join(["at", *KINDS]), *rows, ""])


def _parquet(compression: str) -> bytes:
    table = pa.table(
        {
            "at": pa.array([INGESTED_US] * ROWS, pa.timestamp("us", "UTC")),
            "number": pa.array(range(ROWS), pa.int64()),
            "text": pa.array(["text", None, "b", "b", "b"]),
            "price": pa.array([None, "1", "2.5", "3", "4"]).cast(pa.decimal128(10, 2)),
            "ratio": pa.array([0.5] * ROWS),
            "is_on": pa.array([True, None, False, True, True]),
            "day": pa.array([1, 2, 3, 4, 5], pa.date32()),
            "bytes": pa.array([b"\0"] * ROWS),
            "items": pa.array([[{"name": "a", "count": 1}], [], None, [], []]),
            "tags": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, sink := io.BytesIO(), compression=compression)
    return sink.getvalue()


AVRO_TYPES: dict[str, Any] = {
    "at": "string",
    "number": ["null", "long"],
    "text": "string",
    "ratio": "double",
    "is_on": "boolean",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    "bytes": "bytes",
    "tags": {"type": "map", "values": "long"},
    "kind": {"type": "enum", "name": "kind", "symbols": ["a", "b"]},
}


PACKED = ("null", "deflate", "bzip2", "xz", "zstandard", "snappy", "lz4")


def _avro(codec: str) -> bytes:
    fields = [{"name": name, "type": kind} for name, kind in AVRO_TYPES.items()]
    schema = {"type": "record", "name": "thing", "fields": fields}
    record = {
        "at": AT,
        "number": 1,
        "text": "a",
        "ratio": 0.5,
        "is_on": True,
        "price": Decimal("0.01"),
    }
    record |= {"day": 20_000, "bytes": b"\0", "tags": {"a": 1}, "kind": "b"}
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [record] * ROWS, codec=codec, sync_marker=bytes(range(16)))
    return sink.getvalue()


def _plain_files() -> dict[str, bytes]:
    lines = _json_rows()
    files = {
        "lines.jsonl": "\n".join(lines).encode(),
        "array.json": f"[{', '.join(lines)}]".encode(),
        "objects.json": "\n".join(line.replace(", ", ",\n") for line in lines).encode(),
        "rows.csv": _csv().encode(),
    }
    files |= {f"{c}.parquet": _parquet(c) for c in ("none", "snappy", "gzip", "zstd")}
    return files | {f"{c}.avro": _avro(c) for c in PACKED}


FILES = _plain_files()
TEXTS = tuple(name for name in FILES if name.endswith((".jsonl", ".json", ".csv")))
WORD = re.compile(rb"[^\s,:{}\[\]\"]+")
# What producers write in the place of a value, and what nobody does.
WORDS = [
    b"1e999999999999999999999",
    b"1e-400",
    b"-0.0",
    b"1" * 5_000,
    b"." + b"1" * 5_000,
    b"NaN",
    b"null",
    b"true",
    b"9999-12-31T23:59:59.999999-23:59",
    b"0001-01-01T00:00:00+23:59",
    b"12026-03-01T12:00:00Z",
    b"2026-02-30",
    b"9223372036854775808",
    b"\\ud800",
    b"\\u0000",
    b"[" * 2_000,
    b"{" * 20,
    b'""',
    b'"',
    b"\xe2\x80\xa8",
    b"\r",
    b"[[1]]",
    b'{"a": {"a": 1e400}}',
    b"",
]
BYTES = [b"", b"\xff" * 4, b"\x7f", b"\0" * 8, b"\xff" * 9 + b"\1", b"\x80", b"\x01"]


@st.composite
def changed_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file's name, and content that a disk, a network or a producer has changed in few places."""
    name = draw(st.sampled_from(sorted(FILES)))
    content = bytearray(FILES[name])
    for _ in range(draw(st.integers(1, 3))):
        if name in TEXTS and draw(st.integers(0, 9)):
            _change_word(draw, content)
        else:
            _change_bytes(draw, content)
    if draw(st.integers(0, 3)):
        return name, bytes(content)
    packed = bytearray(gzip.compress(bytes(content), mtime=0))
    if not draw(st.integers(0, 3)):
        _change_bytes(draw, packed)
    return f"{name}.gz", bytes(packed)


def _change_word(draw: st.DrawFn, content: bytearray) -> None:
    words = [match.span() for match in WORD.finditer(content)]
    start, end = draw(st.sampled_from(words)) if words else (0, 0)
    content[start:end] = draw(st.sampled_from(WORDS))


def _change_bytes(draw: st.DrawFn, content: bytearray) -> None:
    start = draw(st.integers(0, len(content)))
    end = min(len(content), start + draw(st.sampled_from([0, 1, 1, 2, 4, 8, 40, 10_000])))
    part = bytes(content[start:end])
    content[start:end] = draw(
        st.one_of(
            st.binary(max_size=8),
            st.sampled_from(BYTES),
            st.just(part * 3),
            st.just(bytes(byte ^ 0x80 for byte in part)),
            st.just(bytes((byte + 1) % 256 for byte in part)),
        )
    )


@dataclass(frozen=True)
class Read:
    """The counts of a file's rows, and the memory that it took."""

    accepted: int
    refused: int
    is_refused_whole: bool
    peak_bytes: int  # above what the process had before


def read_file(name: str, content: bytes, source: Source = SOURCE) -> Read:
    """Parse it as ingestion does, into Arrow's batches, and its refused rows once more."""
    before = _reset_peak()
    *outcomes, file = outcomes_of_content(
        partial(open_rows, name, content, source), source, name, INGESTED_US
    )
    table = pa.Table.from_batches(in_batches(iter([*outcomes, file]), outcome_schema(source)))
    peak = _peak_bytes() - before
    kinds = table["kind"].to_pylist()
    assert kinds[-1] == FILE
    refused = [outcome for outcome in outcomes if outcome["kind"] == REFUSED]
    whole = [outcome for outcome in refused if outcome["row_number"] == WHOLE_FILE]
    assert len(outcomes) == 1 or not whole
    for outcome in refused:
        assert outcome["reason"]
        _read_again(name, outcome["raw"], source)
    return Read(len(outcomes) - len(refused), len(refused), bool(whole), peak)


def _read_again(name: str, raw: str | None, source: Source) -> None:
    """A correction of a row is read from its text: that, too, refuses by our error alone."""
    try:
        row_of_raw(name, raw or "", source)
    except RefusedError:
        return


def _reset_peak() -> int:
    """From here on the peak counts anew; what the process has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak_bytes() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
