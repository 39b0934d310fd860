"""Events packed by workers that read bronze's Parquet files themselves.

A row costs three times as much through Spark's scan and its way to Python as through Arrow's own
reader. So for each row no more leaves the JVM than where it lies: in which part of which file.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.admission import NEVER_US, is_late
from include.fold.arrow_values import conformed
from include.fold.bucket import INSTANTS, dates_within, event_names
from include.fold.definition import KEY, KeyedFold
from include.fold.event_order import keys_of
from include.fold.failures import BrokenInvariantError
from include.fold.key_codes import buckets_of
from include.fold.schemas import event_schema
from include.lake.columns import INSTANT
from include.lake.delta_log import table_to_read
from include.landing.bronze_tables import LateField, with_late_fields
from include.settings import MIB
from spark_jobs.engines.bronze_fields import check_types
from spark_jobs.engines.packing import (
    ADMITTED,
    BUCKET,
    CLOCK,
    COMMIT_US,
    EXCLUDED,
    HAPPENED_US,
    KIND,
    LATE,
    PACKED_DDL,
    Admission,
    clock_column,
    packed_rows,
    with_derived_keys,
)
from spark_jobs.engines.worker_garbage import leave_imports_alone

# With one of these a file's rows are not the table's.
UNREADABLE_FEATURES = frozenset({"columnMapping", "deletionVectors"})


def workers_can_read(bronze: str) -> bool:
    """Whether the table's files lie where each worker opens them, and have its rows as they are."""
    if "://" in bronze:
        return False
    return UNREADABLE_FEATURES.isdisjoint(table_to_read(bronze).protocol().reader_features or ())


class FilePart(NamedTuple):
    """What a task of Spark's scan takes of a file: the row groups with their middle in it."""

    url: str
    start: int  # bytes
    length: int

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.url).path)


def pack_files(
    bronze: DataFrame,
    fold: KeyedFold,
    ids: Sequence[int],
    admission: Admission,
    late: Sequence[LateField] = (),
) -> DataFrame:
    """`pack_events` of packing.py for a frame that is a scan of Parquet files and no more.

    `late`: columns that older files have elsewhere.
    """
    check_types(dict(bronze.dtypes), fold)
    place = (F.input_file_name(), F.input_file_block_start(), F.input_file_block_length())
    placed = bronze.select(*(c.alias(n) for c, n in zip(place, FilePart._fields, strict=True)))

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_imports_alone()
        parts = _rows_by_part(batches)
        read = (_read(part, count, fold, late) for part, count in parts.items())
        rows = [packed_columns(BronzeRows(found), fold, ids, admission=admission) for found in read]
        return packed_rows(pa.concat_tables(rows), event_schema(fold)) if rows else iter(())

    return placed.mapInArrow(pack, PACKED_DDL)


def _rows_by_part(batches: Iterable[pa.RecordBatch]) -> Counter[FilePart]:
    """How many rows Spark saw in each part. Batch by batch: a place is longer than most rows."""
    names, counts = list(FilePart._fields), Counter[FilePart]()
    for batch in batches:
        grouped = pa.Table.from_batches([batch]).group_by(names, use_threads=False)
        for part in grouped.aggregate([([], "count_all")]).to_pylist():
            counts[FilePart(*(part[name] for name in names))] += part["count_all"]
    return counts


def _read(part: FilePart, count: int, fold: KeyedFold, late: Sequence[LateField]) -> pa.Table:
    """BrokenInvariantError unless the part has `count` rows, as many as Spark saw."""
    rows = read_part(part, fold, late)
    if rows.num_rows != count:
        raise BrokenInvariantError(
            f"{part.path} has {rows.num_rows} rows from byte {part.start} on, but Spark read {count}: "
            "it was changed while it was read, or is damaged. No row of it is folded"
        )
    return rows


def read_part(
    part: FilePart, fold: KeyedFold, late: Sequence[LateField], more: Collection[str] = ()
) -> pa.Table:
    """The part's rows, with all columns of bronze that are asked for, and `more` of them."""
    # Spark's writers of old have stamped with nanoseconds in 96 bits, and years beyond them.
    with pq.ParquetFile(part.path, coerce_int96_timestamp_unit="us") as file:
        clocks = {clock_column(fold), INSTANTS[fold.time_us], "event_time", "arrival_watermark"}
        wanted = event_names(fold) | clocks | {"is_clock", *more}
        wanted = wanted.union(*(field.columns() for field in late))
        rows = file.read_row_groups(_row_groups(file.metadata, part), wanted, use_threads=False)
    return with_late_fields(rows, late)


def _row_groups(metadata: pq.FileMetaData, part: FilePart) -> list[int]:
    """Those that Spark reads for the part, by parquet-java's rule."""
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


class BronzeRows:
    """Rows of a file by column, as the table has them today."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.count = rows.num_rows

    def of(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        """A column; without values where the file is older than it."""
        if name not in self._rows.column_names:
            return pa.chunked_array([pa.nulls(self._rows.num_rows, kind)])
        return conformed(self._rows[name], kind)

    def micros(self, name: str) -> pa.ChunkedArray:
        return self.of(name, INSTANT).cast(pa.int64())


def packed_columns(
    rows: BronzeRows, fold: KeyedFold, ids: Sequence[int], admission: Admission
) -> pa.Table:
    """What `packed_rows` packs of a file's rows."""
    schema = event_schema(fold)
    events = {
        field.name: rows.micros(INSTANTS[field.name])
        if field.name in INSTANTS
        else rows.of(field.name, field.type)
        for field in schema
        if field.name != KEY
    }
    keys = None if fold.keys.is_derived else keys_of(fold, pa.table(events))
    table = pa.table(
        {
            BUCKET: np.zeros(rows.count, np.int32) if keys is None else buckets_of(keys, ids),
            KIND: _kinds(rows, fold, admission),
            COMMIT_US: rows.micros(clock_column(fold)),
            HAPPENED_US: rows.micros("event_time"),
            **events,
        }
    )
    return table if keys is not None else with_derived_keys(table, fold, ids)


def _kinds(rows: BronzeRows, fold: KeyedFold, admission: Admission) -> Any:
    """ADMITTED or another, as `pack_events` has Spark decide it."""
    is_clock = rows.of("is_clock", pa.bool_()).fill_null(False).to_numpy()
    kinds = np.full(len(is_clock), ADMITTED, np.int8)
    if admission.since_us is not None:
        kinds[_known(rows.micros(INSTANTS[fold.time_us])) < admission.since_us] = EXCLUDED
    if admission.late_after_us is not None and not fold.in_processing_time:
        arrival_us = rows.micros("arrival_watermark")
        late = is_late(
            _known(rows.micros("event_time")), _known(arrival_us), admission.late_after_us
        )
        kinds[late & arrival_us.is_valid().to_numpy()] = LATE
    kinds[is_clock] = CLOCK
    return kinds


def _known(micros: pa.ChunkedArray) -> Any:
    """As numpy has them; without a value later than all, before which nothing lies."""
    return micros.fill_null(NEVER_US).to_numpy()


# What a task reads, by Spark's own rule for files: all cores have something to do, none too little,
# and none more than it has room for.
LEAST_BYTES, MOST_BYTES = MIB // 2, 128 * MIB
DATES = "partition.event_date"


class Bounds(NamedTuple):
    """Which rows of bronze are asked for, on the fold's clock; None is no bound."""

    ingested_at_us: int  # or earlier
    from_us: int | None
    until_us: int | None  # itself not

    def before(self, until_us: int) -> "Bounds":
        """The same, and before that instant."""
        return self._replace(until_us=min(until_us, self.until_us or NEVER_US))


class PlannedFiles(NamedTuple):
    """What each task reads of which files."""

    tasks: Sequence[Sequence[FilePart]]
    bounds: Bounds
    late: Sequence[LateField]

    def pack(
        self, spark: SparkSession, fold: KeyedFold, ids: Sequence[int], until_us: int | None
    ) -> DataFrame:
        """The rows within the bounds, and before `until_us`, as packed rows (PACKED_DDL)."""
        bounds = self.bounds if until_us is None else self.bounds.before(until_us)
        pack = _packer(self._replace(bounds=bounds), fold, ids)
        tasks = len(self.tasks)
        return spark.range(0, tasks, 1, max(tasks, 1)).mapInArrow(pack, PACKED_DDL)


def plan_files(
    bronze: str, fold: KeyedFold, bounds: Bounds, late: Sequence[LateField], cores: int
) -> PlannedFiles:
    """The files of the local table at `bronze` that may have rows within `bounds`."""
    adds = pa.table(table_to_read(bronze).get_add_actions(flatten=True))
    if INSTANTS[fold.time_us] == "event_time" and DATES in adds.column_names:
        adds = adds.filter(dates_within(pc.field(DATES), bounds.from_us, bounds.until_us))
    sizes = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True)
    files = [(Path(bronze, path).absolute().as_uri(), size) for path, size in sizes]
    return PlannedFiles(_tasks(files, cores), bounds, late)


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


def _packer(
    planned: PlannedFiles, fold: KeyedFold, ids: Sequence[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave_imports_alone()
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        parts = [part for number in numbers for part in planned.tasks[number]]
        rows = [_packable(part, planned, fold, ids=ids) for part in parts]
        rows = [each for each in rows if each.num_rows]
        return packed_rows(pa.concat_tables(rows), event_schema(fold)) if rows else iter(())

    return pack


def _packable(
    part: FilePart, planned: PlannedFiles, fold: KeyedFold, ids: Sequence[int]
) -> pa.Table:
    read = read_part(part, fold, planned.late, more={"ingested_at"})
    rows = BronzeRows(read.filter(_within(BronzeRows(read), fold, planned.bounds)))
    return packed_columns(rows, fold, ids, admission=Admission())


def _within(rows: BronzeRows, fold: KeyedFold, bounds: Bounds) -> pa.ChunkedArray:
    """Which rows are asked for: events whose instants are known, and within the bounds."""
    time_us = rows.micros(INSTANTS[fold.time_us])
    is_event = pc.invert(rows.of("is_clock", pa.bool_()))
    wanted = [is_event, pc.less_equal(rows.micros("ingested_at"), bounds.ingested_at_us)]
    if bounds.from_us is not None:
        wanted.append(pc.greater_equal(time_us, bounds.from_us))
    if bounds.until_us is not None:
        wanted.append(pc.less(time_us, bounds.until_us))
    return reduce(pc.and_, wanted)
