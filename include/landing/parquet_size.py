"""What a Parquet file comes to in memory, before it is read there.

A value of a megabyte, stored once in a dictionary and named by a million rows, is a terabyte.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.landing.refusals import UnreadableFileError

# Bytes of a value in memory; of texts and the like that of where each begins.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
OFFSET = 4


def refuse_bomb(content: bytes, file: pq.ParquetFile, wanted: Sequence[str], most: int) -> None:
    """UnreadableFileError when the wanted columns come to more than `most` bytes in memory.

    What Arrow raises, when one of them is not to be read.
    """
    metadata = file.metadata
    _try_first_rows(file, wanted)
    chunks = list(_chunks(metadata, wanted))
    known = sum(chunk.num_values * _width(metadata, chunk) for chunk in chunks)
    _refuse(known, most)
    texts = [chunk for chunk in chunks if chunk.physical_type == "BYTE_ARRAY"]
    if sum(chunk.num_values * chunk.total_uncompressed_size for chunk in texts) > most:
        _refuse(
            known + _text_bytes(content, sorted({chunk.path_in_schema for chunk in texts})), most
        )


def _try_first_rows(file: pq.ParquetFile, wanted: Sequence[str]) -> None:
    """Raises where what the footer says of a column's part is damaged, as a reader finds out: asked
    for that alone, PyArrow (26.0.1) ends the process, as no one catches there what C++ throws."""
    for group in range(file.metadata.num_row_groups):
        rows = file.iter_batches(1, row_groups=[group], columns=wanted, use_threads=False)
        next(rows, None)


def _is_of(path: str, columns: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def _refuse(found: int, most: int) -> None:
    if found > most:
        raise UnreadableFileError(f"comes to {found} bytes in memory, more than {most}: split it")


def _chunks(metadata: pq.FileMetaData, wanted: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    paths = (metadata.schema.column(index).path for index in range(metadata.num_columns))
    columns = [index for index, path in enumerate(paths) if _is_of(path, wanted)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, columns)


def _width(metadata: pq.FileMetaData, chunk: pq.ColumnChunkMetaData) -> int:
    if chunk.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return WIDTHS.get(chunk.physical_type, OFFSET)
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return next(int(column.length) for column in columns if column.path == chunk.path_in_schema)


def _text_bytes(content: bytes, paths: Sequence[str]) -> int:
    """The bytes of all texts, each as often as it is there. In memory they are there once."""
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=paths)
    found = 0
    for group in range(file.metadata.num_row_groups):
        for column in file.read_row_group(group, columns=paths).columns:
            found += sum(map(_bytes, _leaves(column.combine_chunks())))
    return found


def _leaves(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            yield from _leaves(chunk)
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_struct(array.type) or pa.types.is_list(array.type):
        flat = array.flatten()
        for part in flat if isinstance(flat, list) else [flat]:
            yield from _leaves(part)
    else:
        yield array


def _bytes(leaf: pa.Array) -> int:
    if not pa.types.is_dictionary(leaf.type):
        return int(leaf.nbytes)
    lengths = pc.binary_length(leaf.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(leaf.indices)).as_py() or 0)
