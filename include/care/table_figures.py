"""A table in figures: its files by partition, and what lies in its folder beside them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from include.lake.delta_log import unbroken
from include.lake.paths import Lake, LakeError

READERS = 8  # of footers at once: in a store each is a request
SAVEPOINT_ID = "savepoint_id"  # what a table of savepoints is partitioned by


@dataclass(frozen=True)
class Partition:
    """The files of one date or savepoint, or of the whole table when it is not partitioned."""

    value: date | str | None  # of the partition column
    files: int
    bytes: int
    small_files: int
    small_bytes: int

    @property
    def date(self) -> date | None:
        """None in a table that is not partitioned by date."""
        return None if isinstance(self.value, str) else self.value


@dataclass(frozen=True)
class TableFigures:
    """A version of a table. Garbage: what its VACUUM would delete now."""

    version: int
    partition_column: str | None
    partitions: tuple[Partition, ...]
    files_on_disk: int
    bytes_on_disk: int
    garbage_files: int
    garbage_bytes: int

    @property
    def files(self) -> int:
        return sum(partition.files for partition in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    @property
    def small_files(self) -> int:
        return sum(partition.small_files for partition in self.partitions)


def read_figures(lake: Lake, path: str, table: DeltaTable, small_file_bytes: int) -> TableFigures:
    """`table`, which lies at `path`, in figures. A file below `small_file_bytes` is small.

    Raises LakeError when it is partitioned by anything but one date, or by savepoint.
    """
    on_disk = dict(_data_files(lake, path))
    # It also names what an earlier VACUUM has deleted, and Hadoop's checksum files.
    garbage = on_disk.keys() & table.vacuum(dry_run=True, full=True)
    column = _partition_column(path, table)
    return TableFigures(
        version=table.version(),
        partition_column=column,
        partitions=tuple(_partitions(table, column, small_file_bytes)),
        files_on_disk=len(on_disk),
        bytes_on_disk=sum(on_disk.values()),
        garbage_files=len(garbage),
        garbage_bytes=sum(on_disk[name] for name in garbage),
    )


def lost_files(lake: Lake, path: str, table: DeltaTable) -> tuple[str, ...]:
    """The files of `table`, which lies at `path`, that are gone, of another size or damaged.

    It opens each of them, and so is no part of the figures, which are read after each change, too.
    """
    on_disk = dict(_data_files(lake, path))
    adds = pa.table(table.get_add_actions(flatten=True))
    files = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True)
    is_whole = {name: on_disk.get(unquote(name)) == size for name, size in files}
    whole = [name for name, of_its_size in is_whole.items() if of_its_size]
    with ThreadPoolExecutor(READERS) as readers:
        is_readable = readers.map(lambda name: _has_footer(lake, path, unquote(name)), whole)
        is_whole |= zip(whole, is_readable, strict=True)
    return tuple(sorted(name for name, is_well in is_whole.items() if not is_well))


def _has_footer(lake: Lake, path: str, name: str) -> bool:
    """Whether a data file's description of itself can be read: without it no row of it can."""
    file = f"{lake.path_in_filesystem(path)}/{name}"
    try:
        with unbroken(path):
            pq.read_metadata(file, filesystem=lake.filesystem)
    except LakeError:
        return False
    return True


def _data_files(lake: Lake, path: str) -> Iterator[tuple[str, int]]:
    """Names below the table's folder, and bytes; not those of its log."""
    folder = lake.path_in_filesystem(path)
    for info in lake.filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        name = info.path.removeprefix(f"{folder}/")
        in_log = name.startswith("_delta_log/")
        if info.type == fs.FileType.File and not in_log and not info.base_name.startswith("."):
            yield name, info.size


def _partition_column(path: str, table: DeltaTable) -> str | None:
    columns = list(table.metadata().partition_columns)
    if not columns:
        return None
    kinds = {field.name: str(field.type) for field in table.schema().fields}
    is_date = len(columns) == 1 and kinds[columns[0]] == 'PrimitiveType("date")'
    if not is_date and columns != [SAVEPOINT_ID]:
        raise LakeError(
            f"{path} is partitioned by {', '.join(columns)}: only a table of one date column, of "
            f"{SAVEPOINT_ID}, or of none, is optimized and vacuumed. Put it back as its job made it",
            code="changed_by_others",
            subject=path,
        )
    return str(columns[0])


def _partitions(
    table: DeltaTable, column: str | None, small_file_bytes: int
) -> Iterator[Partition]:
    adds = pa.table(table.get_add_actions(flatten=True))
    size = adds["size_bytes"]
    small = pc.less(size, small_file_bytes)
    values = adds[f"partition.{column}"] if column else pa.nulls(adds.num_rows, pa.date32())
    files = pa.table(
        {
            "value": values,
            "bytes": size,
            "small_files": small.cast(pa.int64()),
            "small_bytes": pc.if_else(small, size, 0),
        }
    )
    sums = [("bytes", "count"), *((name, "sum") for name in files.column_names[1:])]
    for row in files.group_by("value").aggregate(sums).to_pylist():
        yield Partition(
            value=row["value"],
            files=row["bytes_count"],
            bytes=row["bytes_sum"],
            small_files=row["small_files_sum"],
            small_bytes=row["small_bytes_sum"],
        )
