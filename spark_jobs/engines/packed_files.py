"""Events packed by workers that read bronze's Parquet files themselves.

A row costs three times as much through Spark's scan as through Arrow's reader. So a row of a live batch
leaves the JVM as its part of a file alone; for a replay Delta's log has the files.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.arrow_values import event_schema
from include.fold.bucket import INSTANTS, dates_within, event_names
from include.fold.definition import KeyedFold
from include.fold.failures import BrokenInvariantError
from include.fold.records import DefinitionError, sql_type
from include.ingest.bronze_tables import LateField, late_fields_of, with_late_fields
from include.lake.columns import sql_name
from include.lake.delta_log import found_columns, open_table, unbroken
from include.lake.multiset import WEIGHT, has_weights, net
from include.lake.paths import files_of
from include.settings import MIB
from spark_jobs.engines.packing import (
    PACKED_DDL,
    TAKEN,
    Admission,
    Bounds,
    admitted_rows,
    clock_column,
    column_of,
    from_stream,
    hide_modules_from_gc,
    micros_of,
    packed_rows,
    to_stream,
)


def check_bronze(path: str, fold: KeyedFold) -> None:
    """Raise DefinitionError unless the bronze at `path` has the fold's fields, with their types."""
    found = {name: sql_name(kind) for name, kind in found_columns(open_table(path))}
    for column in fold.event_columns:
        has = found.get(column.name)
        if column.name in INSTANTS or (has and sql_type(column.kind).holds(sql_type(has))):
            continue
        said = f"is {column.kind}, but bronze has {has or 'no such column'}"
        raise DefinitionError(f"{fold.event.__name__}.{column.name} {said}", subject=column.name)


class FilePart(NamedTuple):
    """A task's part of a file in Spark's scan: the row groups with their middle in it."""

    url: str
    start: int  # bytes
    length: int

    @property
    def path(self) -> str:
        is_local = self.url.startswith("file:")
        return unquote(urlsplit(self.url).path if is_local else self.url)


def pack_files(
    bronze: DataFrame,
    fold: KeyedFold,
    ids: Sequence[int],
    admission: Admission,
    late: Sequence[LateField] = (),
) -> DataFrame:
    """Return the rows of a scan of bronze as packed rows, one per bucket and input partition."""
    place = (F.input_file_name(), F.input_file_block_start(), F.input_file_block_length())
    placed = bronze.select(*(c.alias(n) for c, n in zip(place, FilePart._fields, strict=True)))

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hide_modules_from_gc()
        parts = _rows_by_part(batches).items()
        rows = (read_part(part, fold, late, "watermark_before", count) for part, count in parts)
        return _packed(rows, fold, ids, admission)

    return placed.mapInArrow(pack, PACKED_DDL)


def _packed(
    tables: Iterable[pa.Table], fold: KeyedFold, ids: Sequence[int], admission: Admission
) -> Iterator[pa.RecordBatch]:
    rows = [admitted_rows(each, fold, ids, admission) for each in tables if each.num_rows]
    schema = event_schema(fold)
    if rows and TAKEN in rows[0].column_names:
        schema = schema.append(rows[0].schema.field(TAKEN))
    return packed_rows(pa.concat_tables(rows), schema) if rows else iter(())


def _rows_by_part(batches: Iterable[pa.RecordBatch]) -> Counter[FilePart]:
    """Count the rows that Spark saw in each part, by batch: a part's name is longer than most rows."""
    names, counts = list(FilePart._fields), Counter[FilePart]()
    for batch in batches:
        grouped = pa.Table.from_batches([batch]).group_by(names, use_threads=False)
        for part in grouped.aggregate([([], "count_all")]).to_pylist():
            counts[FilePart(*(part[name] for name in names))] += part["count_all"]
    return counts


def read_part(
    part: FilePart,
    fold: KeyedFold,
    late: Sequence[LateField],
    chosen_by: str,
    count: int | None = None,
    is_weighted: bool = False,
) -> pa.Table:
    """Read the part's rows with the columns of events; BrokenInvariantError for others than `count`.

    `is_weighted`: with their weights as TAKEN.
    """
    clocks = {clock_column(fold), "event_time", "is_heartbeat", chosen_by}
    if is_weighted:
        clocks.add(WEIGHT)
    wanted = (event_names(fold) | clocks).union(*(field.columns() for field in late))
    folder, _, name = part.path.rpartition("/")
    with (
        unbroken(part.path),
        files_of(folder).open_input_file(name) as opened,
        # Old writers of Spark have stamps in 96 bits, of years beyond those of nanoseconds.
        pq.ParquetFile(
            opened,
            coerce_int96_timestamp_unit="us",
            pre_buffer="://" in folder,
            page_checksum_verification=True,
        ) as file,
    ):
        rows = file.read_row_groups(_row_groups(file.metadata, part), wanted, use_threads=False)
    if count is not None and rows.num_rows != count:
        raise BrokenInvariantError(
            f"{part.path} has {rows.num_rows} rows from byte {part.start} on, and not {count}"
        )
    if is_weighted:
        rows = rows.append_column(TAKEN, rows[WEIGHT])
    return with_late_fields(rows, late)


def _row_groups(metadata: pq.FileMetaData, part: FilePart) -> list[int]:
    """Return the row groups that Spark reads for the part, by parquet-java's rule."""
    end = part.start + part.length
    groups = range(metadata.num_row_groups)
    return [i for i in groups if part.start <= _middle(metadata.row_group(i)) < end]


def _middle(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    begin = first.data_page_offset
    if first.has_dictionary_page and first.dictionary_page_offset < begin:
        begin = first.dictionary_page_offset
    size = sum(group.column(i).total_compressed_size for i in range(group.num_columns))
    return int(begin + size // 2)


# Of a task, by Spark's own rule: all cores have something to do, none too little or much.
LEAST_BYTES, MOST_BYTES = MIB // 2, 128 * MIB
DATES = "partition.event_date"


class BronzeEvents(NamedTuple):
    """The events of bronze within bounds, and each task's parts of files."""

    spark: SparkSession
    tasks: Sequence[Sequence[FilePart]]
    bounds: Bounds
    late: Sequence[LateField]
    is_weighted: bool  # rows may take others back

    def pack(self, fold: KeyedFold, ids: Sequence[int]) -> DataFrame:
        """Return all of them as packed rows (PACKED_DDL), without those that are taken back."""
        tasks, late, bounds, is_weighted = self.tasks, self.late, self.bounds, self.is_weighted

        def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            hide_modules_from_gc()
            numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
            parts = (part for number in numbers for part in tasks[number])
            read = (read_part(p, fold, late, "ingested_at", None, is_weighted) for p in parts)
            within = (rows.filter(_within(rows, fold, bounds)) for rows in read)
            return _packed(within, fold, ids, Admission())

        numbers = self.spark.range(0, len(tasks), 1, max(len(tasks), 1))
        packed = numbers.mapInArrow(pack, PACKED_DDL)
        # A row and the one that takes it back are of one bucket, but of different files.
        return packed.groupBy("bucket").applyInArrow(_net, PACKED_DDL) if is_weighted else packed


def _net(packed: pa.Table) -> pa.Table:
    """Return the packed rows of a bucket as one, without events that are taken back."""
    events = net(pa.concat_tables(map(from_stream, packed["events"].to_pylist())), TAKEN)
    position, one = packed.column_names.index("events"), packed.slice(0, 1)
    stream = pa.array([to_stream(events)], pa.binary())
    return one.set_column(position, packed.schema.field("events"), stream)


def events_between(
    spark: SparkSession, bronze: str, fold: KeyedFold, bounds: Bounds
) -> BronzeEvents:
    """Return the events of the table at `bronze`, without heartbeats."""
    check_bronze(bronze, fold)
    table = open_table(bronze)
    adds = pa.table(table.get_add_actions(flatten=True))
    if INSTANTS[fold.time_us] == "event_time" and DATES in adds.column_names:
        adds = adds.filter(dates_within(pc.field(DATES), bounds.from_us, bounds.until_us))
    folder = bronze if "://" in bronze else Path(bronze).absolute().as_uri()
    sizes = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True)
    files = [(f"{folder}/{quote(path)}", size) for path, size in sizes]
    tasks = _tasks(files, spark.sparkContext.defaultParallelism)
    late = late_fields_of(bronze, fold)
    return BronzeEvents(spark, tasks, bounds, late, is_weighted=has_weights(table))


def _tasks(files: Sequence[tuple[str, int]], cores: int) -> list[list[FilePart]]:
    share = sum(size for _, size in files) // cores
    most = min(MOST_BYTES, max(LEAST_BYTES, share))
    tasks: list[list[FilePart]] = []
    room = 0
    for url, size in files:
        for start in range(0, size, most):
            part = FilePart(url, start, min(most, size - start))
            if part.length > room:
                tasks.append([])
                room = most
            tasks[-1].append(part)
            room -= part.length
    return tasks


def _within(rows: pa.Table, fold: KeyedFold, bounds: Bounds) -> pa.Array:
    """Return the mask of events within the bounds."""
    time_us = micros_of(rows, INSTANTS[fold.time_us])
    is_heartbeat = column_of(rows, "is_heartbeat", pa.bool_()).fill_null(False).to_numpy()
    wanted = ~is_heartbeat & (micros_of(rows, "ingested_at") <= bounds.ingested_at_us)
    if bounds.from_us is not None:
        wanted &= time_us >= bounds.from_us
    if bounds.until_us is not None:
        wanted &= time_us < bounds.until_us
    return pa.array(wanted)
