"""The rows of an Avro object container file, by its own schema.

The container is read here and its records by fastavro, whose own reader of containers unpacks a
block however large that is.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader

from include.landing.avro_schema import (
    BROKEN,
    AvroSchema,
    AvroSchemaError,
    broken,
    read_record,
    read_schema,
)
from include.landing.landed_content import what_it_is
from include.landing.landed_row import check_columns
from include.landing.refusals import UnreadableFileError
from include.landing.row_as_json import raw_writer
from include.landing.typed_texts import text_typer
from include.settings import Source

SYNC = {"type": "fixed", "name": "sync", "size": 16}
HEADER = parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": SYNC},
        ],
    }
)
BLOCK = parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [
            {"name": "count", "type": "long"},
            {"name": "data", "type": "bytes"},
            {"name": "sync", "type": SYNC},
        ],
    }
)


class Block(NamedTuple):
    """Records, one after the other, unpacked."""

    records: int
    data: bytes


class AvroRows:
    """Avro: see `LandedRows` for what its methods promise."""

    def __init__(self, content: bytes, source: Source) -> None:
        self._raw, self._typed = raw_writer(source), text_typer(source)
        if not content.startswith(b"Obj\x01"):
            raise UnreadableFileError(f"not an Avro file: it is {what_it_is(content)}")
        try:
            self._read(io.BytesIO(content), source)
        except BROKEN as error:
            raise UnreadableFileError(f"not a whole Avro file: {broken(error)}") from None

    def _read(self, file: io.BytesIO, source: Source) -> None:
        header: Any = schemaless_reader(file, HEADER, None)
        self._schema = _schema_of(header["meta"]["avro.schema"].decode())
        check_columns(self._schema.columns, source, "Avro")
        codec = header["meta"].get("avro.codec", b"null").decode()
        self._blocks = list(_blocks(file, header["sync"], codec, source.max_file_bytes))
        for _ in self.items():  # finds a record that is broken
            pass

    def items(self) -> Iterator[dict[str, object]]:
        for block in self._blocks:
            data = io.BytesIO(block.data)
            for _ in range(block.records):
                yield read_record(data, self._schema)
            if data.read(1):
                raise ValueError("a block has more bytes than its records")

    def values(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return self._typed(item)

    def raw(self, item: Mapping[str, object]) -> str:
        return self._raw(self._typed(item))


def _schema_of(text: str) -> AvroSchema:
    try:
        return read_schema(text)
    except AvroSchemaError as error:
        raise UnreadableFileError(str(error)) from None


def _blocks(file: io.BytesIO, sync: bytes, codec: str, max_bytes: int) -> Iterator[Block]:
    unpack, left = _codec(codec), max_bytes
    while file.tell() < len(file.getbuffer()):
        block: Any = schemaless_reader(file, BLOCK, None)
        if block["sync"] != sync:
            raise ValueError("a block that does not end where it should")
        data = unpack(block["data"], left)
        left -= len(data)
        if left < 0:
            raise UnreadableFileError(f"unpacks to more than {max_bytes} bytes: split it")
        if not 0 <= block["count"] <= len(data):
            raise ValueError(f"a block of {len(data)} bytes with {block['count']} records")
        yield Block(block["count"], data)


def _codec(name: str) -> Any:
    """Of a block's bytes and the most that is wanted: what they unpack to, or a byte more than that."""
    if name not in CODECS:
        known = ", ".join(CODECS)
        raise UnreadableFileError(f"Avro packed with {name!r}: known are {known}")
    return CODECS[name]


def _stored(data: bytes, most: int) -> bytes:
    return data


def _deflate(data: bytes, most: int) -> bytes:
    return zlib.decompressobj(-15).decompress(data, most + 1)


def _snappy(data: bytes, most: int) -> bytes:
    packed, checksum = data[:-4], data[-4:]
    size: int = _snappy_size(packed)
    if size > most:
        return b"\0" * (most + 1)
    found: bytes = pa.decompress(packed, size, codec="snappy", asbytes=True)
    if zlib.crc32(found).to_bytes(4) != checksum:
        raise ValueError("a block's checksum is wrong")
    return found


def _snappy_size(packed: bytes) -> int:
    """What snappy says that its bytes unpack to: seven bits a byte, the lowest first."""
    size = 0
    for index, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise ValueError("a block without its size")


def _streamed(make: Any, data: bytes, most: int) -> bytes:
    found: bytes = make().decompress(data, most + 1)
    return found


def _zstd(data: bytes, most: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read(most + 1))


CODECS = {
    "null": _stored,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstd,
    "bzip2": partial(_streamed, bz2.BZ2Decompressor),
    "xz": partial(_streamed, lzma.LZMADecompressor),
}
