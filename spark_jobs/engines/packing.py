"""Events packed into one row per bucket before the shuffle, and outputs unpacked after the operator.

Spark's Python operators turn every row into Python objects and back, several times: so the events of a
bucket cross as one row with an Arrow stream in it, and so do its outputs.
"""

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from include.fold.admission import NEVER_US, is_late
from include.fold.arrow_values import event_schema, schema_of
from include.fold.bucket import INSTANTS, derived_keys
from include.fold.definition import KEY, KeyedFold
from include.fold.event_order import keys_of
from include.fold.keys import buckets_of
from include.lake.columns import INSTANT

_modules_hidden = 0  # the number of modules when they were last hidden


def hide_modules_from_gc() -> None:
    """Hide modules from Python's garbage collector, by which a worker lost 27 ms after each task.

    Much is imported only by the first task itself: so again where modules have come since.
    """
    global _modules_hidden
    if len(sys.modules) != _modules_hidden:
        gc.freeze()
        _modules_hidden = len(sys.modules)


PACKED_DDL = (
    "bucket int, events binary, rows_in bigint, rows_late bigint, rows_before_initial_state bigint, "
    "late_first_us bigint, late_last_us bigint, commit_us bigint"
)
PACKED = schema_of(PACKED_DDL)


class PackedRow(NamedTuple):
    """A bucket's share of an input partition: a row of PACKED."""

    bucket: int
    events: bytes  # an Arrow stream
    rows_in: int
    rows_late: int
    rows_before_initial_state: int
    late_first_us: int  # the earliest event time among the late rows; NEVER_US without any
    late_last_us: int  # the latest; -NEVER_US without any
    commit_us: int  # the newest commit's watermark among its rows, late and heartbeats included


class Admission(NamedTuple):
    """The bounds of rows that are folded; all are, by default."""

    late_after_us: int | None = None  # the watermark delay; None: no row is late
    since_us: int | None = (
        None  # the initial state's `as_of`, on the fold's clock; None: there is none
    )


class Bounds(NamedTuple):
    """The bounds of the rows of bronze to read, on the fold's clock; None: no bound."""

    ingested_at_us: int  # inclusive
    from_us: int | None = None  # inclusive
    until_us: int | None = None  # exclusive


# Arrow's binary arrays end at 2 GiB; a batch of packed rows is cut well before.
BATCH_BYTES = 256 * 1024**2
ADMITTED, LATE, BEFORE_INITIAL_STATE, HEARTBEAT = 0, 1, 2, 3
# Columns besides an event's own, of which none can begin with an underscore.
BUCKET, KIND, COMMIT_US, HAPPENED_US = "_bucket", "_kind", "_commit_us", "_happened_us"
TAKEN = "_weight"  # of rows that may be taken back


def bucket_of(ids: Sequence[int], *key: str | Column) -> Column:
    """Return the bucket of a row's key, one of `ids`. Stored states depend on it: it must never change."""
    position = F.pmod(F.xxhash64(*key), F.lit(len(ids))) + 1
    return F.element_at(F.array(*map(F.lit, ids)), position.cast("int"))


def clock_column(fold: KeyedFold) -> str:
    """Return the bronze column with the fold's clock after a row's commit."""
    return "ingested_at" if fold.in_processing_time else "watermark_after"


def column_of(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of bronze; nulls where the file is older than the column."""
    if name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    return rows[name].cast(kind)


def micros_of(rows: pa.Table, name: str) -> Any:
    """Return an instant of each row as a numpy array of microseconds; NEVER_US where there is none."""
    return column_of(rows, name, INSTANT).cast(pa.int64()).fill_null(NEVER_US).to_numpy()


def admitted_rows(
    rows: pa.Table, fold: KeyedFold, ids: Sequence[int], admission: Admission
) -> pa.Table:
    """Return rows of bronze as events, each with its bucket and kind, for `packed_rows`."""
    events = {}
    for field in event_schema(fold):
        if field.name in INSTANTS:
            events[field.name] = pa.chunked_array([micros_of(rows, INSTANTS[field.name])])
        elif field.name != KEY:
            events[field.name] = column_of(rows, field.name, field.type)
    if TAKEN in rows.column_names:
        events[TAKEN] = rows[TAKEN].cast(pa.int32())
    keys = None if fold.keys.is_derived else keys_of(fold, pa.table(events))
    table = pa.table(
        {
            BUCKET: np.zeros(rows.num_rows, np.int32) if keys is None else buckets_of(keys, ids),
            KIND: _kinds(rows, fold, admission),
            COMMIT_US: micros_of(rows, clock_column(fold)),
            HAPPENED_US: micros_of(rows, "event_time"),
            **events,
        }
    )
    return table if keys is not None else _with_derived_keys(table, fold, ids)


def _kinds(rows: pa.Table, fold: KeyedFold, admission: Admission) -> Any:
    """Return the kind of each row: ADMITTED, LATE, BEFORE_INITIAL_STATE or HEARTBEAT."""
    kinds = np.full(rows.num_rows, ADMITTED, np.int8)
    if admission.since_us is not None:
        is_before = micros_of(rows, INSTANTS[fold.time_us]) < admission.since_us
        kinds[is_before] = BEFORE_INITIAL_STATE
    if admission.late_after_us is not None and not fold.in_processing_time:
        before_us = micros_of(rows, "watermark_before")
        late = is_late(micros_of(rows, "event_time"), before_us, admission.late_after_us)
        # The first commit of a source has no watermark before it: nothing in it is late.
        kinds[late & (before_us != NEVER_US)] = LATE
    kinds[column_of(rows, "is_heartbeat", pa.bool_()).fill_null(False).to_numpy()] = HEARTBEAT
    return kinds


def _with_derived_keys(rows: pa.Table, fold: KeyedFold, ids: Sequence[int]) -> pa.Table:
    """Return rows with the keys that the fold's function computes of those that are admitted."""
    admitted = rows[KIND].to_numpy() == ADMITTED
    schema = event_schema(fold)
    events = {c.name: rows[c.name].cast(schema.field(c.name).type) for c in fold.event_columns}
    derived = derived_keys(fold, pa.table(events).filter(pa.array(admitted)))
    # The others have none: a heartbeat is no event.
    keys = derived.take(pa.array(np.cumsum(admitted) - 1, mask=~admitted))
    buckets = pa.array(buckets_of(keys, ids), pa.int32())
    position = rows.column_names.index(BUCKET)
    return rows.set_column(position, BUCKET, buckets).append_column(KEY, keys)


def packed_rows(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield `rows` as packed rows, one per bucket: those that are not ADMITTED are only counted."""
    bucket = rows[BUCKET].to_numpy()
    order = np.argsort(bucket, kind="stable")
    starts = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    kind = rows[KIND].to_numpy()[order]
    admitted = kind == ADMITTED
    ends = np.cumsum(np.add.reduceat(admitted, starts, dtype=np.int64))
    events = rows.select(schema.names).take(order[admitted]).combine_chunks().cast(schema)
    yield from _in_batches(
        bucket[order][starts].tolist(),
        (
            to_stream(events.slice(start, end - start))
            for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        ),
        np.add.reduceat(kind != HEARTBEAT, starts, dtype=np.int64).tolist(),
        np.add.reduceat(kind == LATE, starts, dtype=np.int64).tolist(),
        np.add.reduceat(kind == BEFORE_INITIAL_STATE, starts, dtype=np.int64).tolist(),
        *_late_between(kind == LATE, rows[HAPPENED_US].to_numpy()[order], starts),
        np.maximum.reduceat(rows[COMMIT_US].to_numpy()[order], starts).tolist(),
    )


def _late_between(late: Any, happened_us: Any, starts: Any) -> tuple[list[int], list[int]]:
    first = np.minimum.reduceat(np.where(late, happened_us, NEVER_US), starts)
    last = np.maximum.reduceat(np.where(late, happened_us, -NEVER_US), starts)
    return first.tolist(), last.tolist()


def _in_batches(
    buckets: list[int], streams: Iterable[bytes], *counts: list[int]
) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in zip(buckets, streams, *counts, strict=True):
        rows.append(row)
        size += len(row[1])
        if size >= BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), PACKED, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in columns], schema=PACKED)


def unpack(packed: DataFrame, column: str, ddl: str) -> DataFrame:
    """Return the rows in the Arrow streams of `packed[column]`, a frame of schema `ddl`."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hide_modules_from_gc()
        for batch in batches:
            for stream in batch.column(0):
                yield from from_stream(stream.as_py()).to_batches()

    return packed.where(F.col(column).isNotNull()).select(column).mapInArrow(rows, ddl)


def to_stream(table: pa.Table, compression: Literal["zstd"] | None = None) -> bytes:
    """Return `table` as an Arrow IPC stream; readers see by themselves that its columns are compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def any_stream(table: pa.Table) -> bytes | None:
    """Return the same; None of a table without rows."""
    return to_stream(table) if table.num_rows else None


def from_stream(stream: bytes) -> pa.Table:
    """Return the table of an Arrow IPC stream."""
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
