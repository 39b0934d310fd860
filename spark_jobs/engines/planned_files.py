"""Bronze's files of a replay, packed by workers that are told which: no row of them enters the JVM.

Spark's scan, and its rows' way to Python, were a fifth of a replay.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from include.fold.admission import NEVER_US
from include.fold.bronze_events import INSTANTS, dates_within
from include.fold.definition import KeyedFold
from include.fold.schemas import event_schema
from include.lake.read_tables import table_to_read
from include.landing.late_fields import LateField
from include.settings import MIB
from spark_jobs.engines.packed_files import BronzeRows, FilePart, packed_columns, read_part
from spark_jobs.engines.packing import PACKED_DDL, Admission, packed_rows
from spark_jobs.engines.worker_garbage import leave_imports_alone

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
        rows = [_packable(part, planned, fold, ids) for part in parts]
        rows = [each for each in rows if each.num_rows]
        return packed_rows(pa.concat_tables(rows), event_schema(fold)) if rows else iter(())

    return pack


def _packable(
    part: FilePart, planned: PlannedFiles, fold: KeyedFold, ids: Sequence[int]
) -> pa.Table:
    read = read_part(part, fold, planned.late, {"ingested_at"})
    rows = BronzeRows(read.filter(_within(BronzeRows(read), fold, planned.bounds)))
    return packed_columns(rows, fold, ids, Admission())


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
