"""Looks for bytes in each file below a folder, whatever they are packed in.

Parquet is decoded, cell by cell; what is compressed as a whole (gzip, zip, zstd) or holds frames of zstd somewhere
is unpacked, and looked through in turn. A caller that has a JVM gives what reads RocksDB's files.
"""

import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

ZSTD = b"\x28\xb5\x2f\xfd"
Unpack = Callable[[Path], Iterable[bytes]]


def files_with(folder: Path, secrets: Iterable[bytes], unpack: Unpack = lambda _: ()) -> set[str]:
    """The files, below `folder`, in which any of the secrets is."""
    wanted = list(secrets)
    return {
        str(file.relative_to(folder))
        for file in sorted(folder.rglob("*"))
        if file.is_file() and _has(file, wanted, unpack)
    }


def _has(file: Path, secrets: list[bytes], unpack: Unpack) -> bool:
    contents = [str(file).encode(), *unpacked(file.read_bytes()), *unpack_all(unpack(file))]
    return any(secret in content for secret in secrets for content in contents)


def unpack_all(contents: Iterable[bytes]) -> Iterator[bytes]:
    for content in contents:
        yield from unpacked(content)


def unpacked(content: bytes) -> Iterator[bytes]:
    """The content, and all that is packed in it."""
    yield content
    if content[:4] == b"PAR1" and content[-4:] == b"PAR1":
        yield from unpack_all(_cells(pq.read_table(io.BytesIO(content))))
    elif content[:2] == b"\x1f\x8b":
        yield from unpacked(gzip.decompress(content))
    elif zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name in packed.namelist():
                yield from unpacked(packed.read(name))
    else:
        yield from _frames(content)


def _cells(table: pa.Table) -> Iterator[bytes]:
    for row in table.to_pylist():
        yield from _leaves(row)


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()


def _frames(content: bytes) -> Iterator[bytes]:
    """Each frame of zstd that begins somewhere in the content, as far as it can be read."""
    at = content.find(ZSTD)
    while at >= 0:
        found = bytearray()
        try:
            with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content[at:])) as reader:
                while part := reader.read(1 << 20):
                    found += part
        except zstandard.ZstdError:
            pass  # these four bytes began none, or it ended in the middle of other bytes
        yield bytes(found)
        at = content.find(ZSTD, at + 4)
