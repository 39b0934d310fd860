"""A version of bronze as a point in time, and how many of its events lie before an instant.

Bronze is append-only, and `ingested_at` is later in each commit than in all before. So "all
rows of version V" is "all rows up to V's newest `ingested_at`", in any later version: no old
version has to be kept readable, and OPTIMIZE and VACUUM are free to work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import dataset as ds

from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.lake.delta_log import open_rows_of, open_table, table_to_read, unbroken
from include.lake.errors import LakeError
from include.lake.paths import Lake, files_of
from include.registry import streams_of

INSTANT = pa.timestamp("us", tz="UTC")
DAY_US = 24 * 3_600_000_000


class BronzeFiles:
    """What the log says of each file of bronze, as columns; null where it does not say."""

    def __init__(self, table: DeltaTable) -> None:
        self._adds = pa.table(table.get_add_actions(flatten=True))

    def instants(self, bound: Literal["min", "max"], column: str) -> Any:
        """Each file's smallest or largest instant in microseconds, cut to a millisecond."""
        return self._column(f"{bound}.{column}", INSTANT).cast(pa.int64())

    def latest(self, column: str) -> Any:
        """An instant which no row of the file is after, in microseconds."""
        return pc.add(self.instants("max", column), US_PER_MS - 1)

    def span(self, time_column: str) -> tuple[Any, Any]:
        """Two instants in microseconds between which each file's rows lie, both inclusive."""
        first, last = self.instants("min", time_column), self.latest(time_column)
        if time_column != "event_time":
            return first, last
        date = self._column("partition.event_date", pa.date32())
        midnight = date.cast(pa.timestamp("us")).cast(pa.int64())
        end = pc.add(midnight, DAY_US - 1)
        return pc.max_element_wise(first, midnight), pc.min_element_wise(last, end)

    def rows(self) -> Any:
        return self._column("num_records", pa.int64())

    def events(self) -> Any:
        """Each file's rows; null as well when clock rows, which have no `source_file`, may be
        among them."""
        no_clocks = pc.equal(self._column("null_count.source_file", pa.int64()), 0)
        return pc.if_else(known(no_clocks), self.rows(), None)

    def paths_but(self, excluded: Any) -> list[str]:
        """The files for which `excluded` is not true."""
        paths: list[str] = self._adds["path"].filter(pc.invert(known(excluded))).to_pylist()
        return paths

    def _column(self, name: str, kind: pa.DataType) -> Any:
        if name not in self._adds.column_names:
            return pa.chunked_array([pa.nulls(self._adds.num_rows, kind)])
        return self._adds[name].cast(kind)


def known(condition: Any) -> Any:
    """True where the condition is; false where it is not, or where that is not known."""
    return pc.fill_null(condition, False)


def read_files(
    table: DeltaTable,
    paths: Sequence[str],
    columns: list[str],
    wanted: pc.Expression | None = None,
) -> Iterator[Any]:
    """Rows of these files alone. Read without delta-rs's dataset: that takes the statistics for
    exact, and rows within the last millisecond would be left out by file. LakeError when one is
    lost or damaged."""
    if not paths:
        return
    uri = str(table.table_uri)
    filesystem = files_of(uri)
    parquet = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    fragments = [parquet.make_fragment(path, filesystem) for path in paths]
    schema = pa.schema(table.schema().to_arrow())
    dataset = ds.FileSystemDataset(fragments, schema, parquet, filesystem)
    with unbroken(uri):
        yield from dataset.scanner(columns, filter=wanted).to_batches()


CLOCKS = pa.schema([("ingested_at", INSTANT), ("commit_watermark", INSTANT)])


@dataclass(frozen=True)
class BronzePin:
    """All rows of a version of a bronze table."""

    path: str
    table_id: str
    version: int
    ingested_at_us: int
    watermark_us: int  # M after its newest commit

    def settled_until_us(self, time_column: str, delay_us: int) -> int:
        """The exclusive bound of what these rows settle, on the clock of `time_column`."""
        if time_column == "ingested_at":
            return self.ingested_at_us + 1
        return self.watermark_us - delay_us + 1


def pin_bronze(lake: Lake, source: str, version: int | None = None) -> BronzePin:
    """A version of the source's bronze, the newest for None.

    LakeError when it has no rows yet or cannot be read, or the clean-up of its log has taken that
    version away.
    """
    path = lake.bronze(source)
    refuse_no_bronze(lake, source)
    table = open_table(path) if version is None else open_rows_of(lake, path, version)
    clocks = pa.Table.from_batches(
        read_files(table, _newest_files(table), ["ingested_at", "commit_watermark"]), CLOCKS
    )
    if not clocks.num_rows:
        raise LakeError(
            f"{path} has no rows yet: there is nothing to compute from",
            code="nothing_there",
            subject=f"bronze/{source}",
        )
    ingested_at = pc.max(clocks["ingested_at"]).as_py()
    # Of the newest commit alone: a repair sets M back, and a file may hold older commits' rows.
    newest = clocks.filter(pc.equal(clocks["ingested_at"], ingested_at))
    watermark = pc.max(newest["commit_watermark"]).as_py()
    table_id = str(table.metadata().id)
    return BronzePin(
        path,
        table_id,
        int(table.version()),
        ingested_at_us=micros_of(ingested_at),
        watermark_us=micros_of(watermark),
    )


def refuse_no_bronze(lake: Lake, source: str) -> None:
    """LakeError when nothing of the source was ever ingested."""
    if not lake.is_delta_table(path := lake.bronze(source)):
        raise LakeError(
            f"no bronze table at {path}: ingest {source} first",
            code="nothing_there",
            subject=f"bronze/{source}",
            command=next((f"./stateful stream {each.name}" for each in streams_of(source)), None),
        )


def has_commit(pin: BronzePin, ingested_at_us: int) -> bool:
    """Whether bronze has a row that was ingested at just that instant."""
    table = table_to_read(pin.path)
    files = BronzeFiles(table)
    first, last = files.span("ingested_at")
    others = pc.or_kleene(pc.greater(first, ingested_at_us), pc.less(last, ingested_at_us))
    wanted = pc.field("ingested_at") == pa.scalar(instant_of(ingested_at_us), INSTANT)
    found = read_files(table, files.paths_but(others), ["ingested_at"], wanted=wanted)
    return any(batch.num_rows for batch in found)


def _newest_files(table: DeltaTable) -> list[str]:
    """The files that may hold rows of the newest commit."""
    files = BronzeFiles(table)
    newest_us = pc.max(files.instants("max", "ingested_at"))
    older = pc.less(files.latest("ingested_at"), newest_us)
    return files.paths_but(older)


def count_before(
    pin: BronzePin, time_column: str, since_us: int | None, cutoffs_us: Sequence[int]
) -> list[int]:
    """For each cutoff, how many events of the pinned rows lie at or after `since_us` and before it.

    A file of which all rows lie on one side of each bound is counted by the table's log.
    """
    if not cutoffs_us:
        return []
    table = table_to_read(pin.path)
    files = BronzeFiles(table)
    first, last = files.span(time_column)
    outside = pc.greater_equal(first, max(cutoffs_us))
    whole = pc.less_equal(files.latest("ingested_at"), pin.ingested_at_us)
    if since_us is not None:
        outside = pc.or_kleene(outside, pc.less(last, since_us))
        whole = pc.and_kleene(whole, pc.greater_equal(first, since_us))
    for cutoff_us in cutoffs_us:
        one_side = pc.or_kleene(pc.less(last, cutoff_us), pc.greater_equal(first, cutoff_us))
        whole = pc.and_kleene(whole, one_side)
    events = pc.if_else(known(outside), 0, pc.if_else(known(whole), files.events(), None))
    counts = [_sum(pc.if_else(known(pc.less(last, at)), events, 0)) for at in cutoffs_us]
    for times in _event_times(pin, table, files.paths_but(pc.is_valid(events)), time_column):
        if since_us is not None:
            times = times.filter(pc.greater_equal(times, since_us))
        for index, cutoff_us in enumerate(cutoffs_us):
            counts[index] += _sum(pc.less(times, cutoff_us))
    return counts


def _event_times(
    pin: BronzePin, table: DeltaTable, paths: Sequence[str], time_column: str
) -> Iterator[Any]:
    pinned = pc.field("ingested_at") <= pa.scalar(instant_of(pin.ingested_at_us), INSTANT)
    for batch in read_files(table, paths, [time_column], wanted=pinned & ~pc.field("is_clock")):
        yield pc.cast(batch[time_column], pa.int64())


def _sum(values: Any) -> int:
    return int(pc.sum(values).as_py() or 0)
