"""Bronze as of a version, and the old commits and files that streams still have to read.

`ingested_at` is later in each commit than in all before. So "all rows of version V" is "all rows up
to V's newest `ingested_at`" in any later version: no old version has to stay readable.

A stream that is behind reads commits, as long as the log has them, and files that OPTIMIZE has
replaced, as long as VACUUM leaves them. A rebuilt stream reads from the commit after the version
that was replayed, also before it has a checkpoint.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import dataset as ds

from include.catalogue import FINDINGS
from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.lake.delta_log import (
    adds_data,
    made_at,
    open_rows_of,
    open_table,
    read_actions,
    unbroken,
)
from include.lake.errors import LakeError, subject_of
from include.lake.generations import Generations, is_rebuilt, read_generations
from include.lake.multiset import WEIGHT, has_weights
from include.lake.ops import Finding
from include.lake.paths import Lake, files_of
from include.lake.table import Table
from include.registry import stream_names, streams_of
from include.stream.checkpoint import BronzePosition, newest_begun, newest_committed, read_position

INSTANT = pa.timestamp("us", tz="UTC")
DAY_US = 24 * 3_600_000_000
ROWS, HEARTBEATS = "num_records", "null_count.source_file"  # among the statistics of a file


class BronzeFiles:
    """The statistics of bronze's files in the Delta log, as Arrow columns; null where there are none."""

    def __init__(self, table: DeltaTable) -> None:
        self._adds = pa.table(table.get_add_actions(flatten=True))

    def instants(self, bound: Literal["min", "max"], column: str) -> Any:
        """Each file's smallest or largest instant in microseconds, rounded down to a millisecond."""
        return self._column(f"{bound}.{column}", INSTANT).cast(pa.int64())

    def latest(self, column: str) -> Any:
        """An instant in microseconds that no row of the file is after."""
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

    def numbers(self, name: str) -> Any:
        """Each file's ROWS or HEARTBEATS."""
        return self._column(name, pa.int64())

    def events(self) -> Any:
        """Each file's rows; null where heartbeats may be among them."""
        no_heartbeats = pc.equal(self.numbers(HEARTBEATS), 0)
        return pc.if_else(known(no_heartbeats), self.numbers(ROWS), None)

    def paths_but(self, excluded: Any) -> list[str]:
        """The paths of the files for which `excluded` is not true."""
        paths: list[str] = self._adds["path"].filter(pc.invert(known(excluded))).to_pylist()
        return paths

    def _column(self, name: str, kind: pa.DataType) -> Any:
        if name not in self._adds.column_names:
            return pa.chunked_array([pa.nulls(self._adds.num_rows, kind)])
        return self._adds[name].cast(kind)


def count_events(table: DeltaTable) -> int:
    """The number of rows in bronze, as it is open, without heartbeats, which alone have no source file."""
    files = BronzeFiles(table)
    rows, heartbeats = files.numbers(ROWS), files.numbers(HEARTBEATS)
    if rows.null_count or heartbeats.null_count:
        # Delta has no statistics past a table's 32nd column, nor of files that others rewrote
        # without them: count the rows.
        found = table.to_pyarrow_dataset(filesystem=files_of(str(table.table_uri)))
        return int(found.count_rows(filter=~pc.field("is_heartbeat")))
    return int(pc.sum(pc.subtract(rows, heartbeats)).as_py() or 0)


def known(condition: Any) -> Any:
    """Return the condition with false for null."""
    return pc.fill_null(condition, False)


def read_files(
    table: DeltaTable, paths: Sequence[str], columns: list[str], wanted: pc.Expression | None = None
) -> Iterator[Any]:
    """Read the rows of these files; LakeError when one is lost or damaged.

    Not by delta-rs's dataset, which takes the log's bounds, rounded to a millisecond, for exact.
    """
    if not paths:
        return
    uri, filesystem = str(table.table_uri), files_of(str(table.table_uri))
    parquet = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    fragments = [parquet.make_fragment(path, filesystem) for path in paths]
    schema = pa.schema(table.schema().to_arrow())
    dataset = ds.FileSystemDataset(fragments, schema, parquet, filesystem)
    with unbroken(uri):
        yield from dataset.scanner(columns, filter=wanted).to_batches()


WATERMARKS = pa.schema([("ingested_at", INSTANT), ("watermark_after", INSTANT)])


@dataclass(frozen=True)
class BronzeVersion:
    """All rows of a version of a bronze table."""

    path: str
    table_id: str
    version: int
    ingested_at_us: int
    watermark_us: int  # the source watermark after its newest commit

    def complete_until_us(self, time_column: str, delay_us: int) -> int:
        """The instant of `time_column` until which a stream of these rows is complete, in microseconds."""
        if time_column == "ingested_at":
            return self.ingested_at_us + 1
        return self.watermark_us - delay_us + 1


def newest_bronze(lake: Lake, source: str, version: int | None = None) -> BronzeVersion:
    """Return a version of bronze, the newest for None; LakeError when it has no rows, or is gone."""
    path = lake.bronze(source)
    refuse_no_bronze(lake, source)
    table = open_table(path) if version is None else open_rows_of(lake, path, version)
    batches = read_files(table, _newest_files(table), WATERMARKS.names)
    rows = pa.Table.from_batches(batches, WATERMARKS)
    if not rows.num_rows:
        raise LakeError(
            f"{path} has no rows yet: there is nothing to compute from",
            code="nothing_there",
            subject=f"bronze/{source}",
        )
    ingested_at = pc.max(rows["ingested_at"]).as_py()
    # Of the newest commit alone: set-watermark sets it back, and a file may hold older commits' rows.
    newest = rows.filter(pc.equal(rows["ingested_at"], ingested_at))
    return BronzeVersion(
        path,
        str(table.metadata().id),
        int(table.version()),
        ingested_at_us=micros_of(ingested_at),
        watermark_us=micros_of(pc.max(newest["watermark_after"]).as_py()),
    )


def refuse_no_bronze(lake: Lake, source: str) -> None:
    """Raise LakeError when nothing of the source was ever ingested."""
    if not lake.is_delta_table(path := lake.bronze(source)):
        raise LakeError(
            f"no bronze table at {path}: ingest {source} first",
            code="nothing_there",
            subject=f"bronze/{source}",
            command=next((f"./stateful stream {each.name}" for each in streams_of(source)), None),
        )


def has_commit(bronze: BronzeVersion, ingested_at_us: int) -> bool:
    """True if bronze has a row with just that `ingested_at`."""
    table = open_table(bronze.path)
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
    bronze: BronzeVersion, time_column: str, since_us: int | None, cutoffs_us: Sequence[int]
) -> list[int]:
    """Count the version's events from `since_us` on and before each cutoff, in microseconds.

    By the log's statistics as far as these decide; files across a cutoff are read.
    """
    if not cutoffs_us:
        return []
    table = open_table(bronze.path)
    files = BronzeFiles(table)
    first, last = files.span(time_column)
    outside = pc.greater_equal(first, max(cutoffs_us))
    whole = pc.less_equal(files.latest("ingested_at"), bronze.ingested_at_us)
    if since_us is not None:
        outside = pc.or_kleene(outside, pc.less(last, since_us))
        whole = pc.and_kleene(whole, pc.greater_equal(first, since_us))
    for cutoff_us in cutoffs_us:
        one_side = pc.or_kleene(pc.less(last, cutoff_us), pc.greater_equal(first, cutoff_us))
        whole = pc.and_kleene(whole, one_side)
    events = pc.if_else(known(outside), 0, pc.if_else(known(whole), files.events(), None))
    counts = [_sum(pc.if_else(known(pc.less(last, at)), events, 0)) for at in cutoffs_us]
    for times in _event_times(bronze, table, files.paths_but(pc.is_valid(events)), time_column):
        if since_us is not None:
            times = times.filter(pc.greater_equal(times, since_us))
        for index, cutoff_us in enumerate(cutoffs_us):
            counts[index] += _sum(pc.less(times, cutoff_us))
    return counts


def count_taken_back(bronze: BronzeVersion, from_us: int) -> int:
    """Count the version's rows from an instant of event time on that come to nothing: of each that is taken
    back two."""
    table = open_table(bronze.path)
    if not has_weights(table):
        return 0
    files = BronzeFiles(table)
    paths = files.paths_but(pc.less(files.span("event_time")[1], from_us))
    wanted = pc.field("ingested_at") <= pa.scalar(instant_of(bronze.ingested_at_us), INSTANT)
    wanted &= pc.field("event_time") >= pa.scalar(instant_of(from_us), INSTANT)
    wanted &= pc.field(WEIGHT) < 0
    return 2 * sum(int(batch.num_rows) for batch in read_files(table, paths, [WEIGHT], wanted))


def _event_times(
    bronze: BronzeVersion, table: DeltaTable, paths: Sequence[str], time_column: str
) -> Iterator[Any]:
    in_version = pc.field("ingested_at") <= pa.scalar(instant_of(bronze.ingested_at_us), INSTANT)
    wanted = in_version & ~pc.field("is_heartbeat")
    for batch in read_files(table, paths, [time_column], wanted):
        yield pc.cast(batch[time_column], pa.int64())


def _sum(values: Any) -> int:
    return int(pc.sum(values).as_py() or 0)


@dataclass(frozen=True)
class ReaderLag:
    """The first commit of bronze that a stream still has to read."""

    stream: str
    version: int
    since: datetime | None  # when it was made; None: the log no longer has it


def read_lags(lake: Lake, path: str, table: DeltaTable) -> list[ReaderLag]:
    """The lags of the declared streams that still have to read commits of the table at `path`."""
    lags = (_read_lag(lake, path, table, stream) for stream in stream_names())
    return [lag for lag in lags if lag is not None]


def _read_lag(lake: Lake, path: str, table: DeltaTable, stream: str) -> ReaderLag | None:
    generations = read_generations(lake, stream)
    row, checkpoint = generations.current, lake.checkpoint(stream, generations.number)
    committed = newest_committed(lake, checkpoint)
    batch = newest_begun(lake, checkpoint) if committed is None else committed
    if row is not None and is_rebuilt(row) and committed is None:
        # Also when its first batch is planned, which begins there.
        position = BronzePosition(row["bronze_id"], row["bronze_version"] + 1)
    elif batch is not None:
        position = read_position(lake, f"{checkpoint}/offsets/{batch}")
    else:
        return None
    if position.table_id != str(table.metadata().id):
        return None  # of another source, or of a former table of this name
    for version in range(position.version, table.version() + 1):
        actions = read_actions(lake, path, version)
        if actions is None:
            return ReaderLag(stream, version, None)
        # A first batch reads a whole version, whose files OPTIMIZE may have replaced; after a
        # rebuild Delta begins with just that commit, whatever is in it.
        if adds_data(actions) or committed is None:
            return ReaderLag(stream, version, made_at(actions))
    return None


FILE_RETENTION = ("delta.deletedFileRetentionDuration", timedelta(days=7))
LOG_RETENTION = ("delta.logRetentionDuration", timedelta(days=30))
# A commit's files are written before it, and the clocks of writers and storage differ.
MARGIN = timedelta(days=1)
# A stream behind by more than this part of the log's retention is a finding.
LOG_SHARE = 0.5
SPAN = re.compile(r"(\d+)\s*(week|day|hour|minute|second|millisecond)s?")


def retention(configuration: Mapping[str, str], setting: tuple[str, timedelta]) -> timedelta:
    """The value of a table's property such as `interval 7 days`, or its default; LakeError for another text."""
    name, default = setting
    text = configuration.get(name)
    if text is None:
        return default
    spans = SPAN.findall(text.lower())
    if SPAN.sub("", text.lower()).removeprefix("interval").strip() or not spans:
        raise LakeError(
            f"{name} is {text!r}: expected a text such as 'interval 7 days'",
            code="foreign_properties",
            subject=name,
        )
    return sum((timedelta(**{f"{unit}s": int(count)}) for count, unit in spans), timedelta(0))


def why_not_vacuum(lags: Sequence[ReaderLag], retained: timedelta, now: datetime) -> str | None:
    """The reason why files older than `retained` must not be deleted now; None when no stream needs them."""
    needed = [(lag.since, lag) for lag in lags if lag.since and lag.since < now - retained + MARGIN]
    if not needed:
        return None
    since, lag = min(needed, key=lambda pair: pair[0])
    return (
        f"stream {lag.stream} has not read version {lag.version}, of {since:%Y-%m-%d %H:%M} UTC, and "
        f"VACUUM would delete what is older than {retained / timedelta(days=1):g} days"
    )


def lag_findings(
    table: str, lags: Sequence[ReaderLag], retained: timedelta, now: datetime
) -> list[Finding]:
    """A finding for each stream that the clean-up of a log retained for so long has cut off, or may."""
    found = []
    for lag in lags:
        said = f"stream {lag.stream} goes on with version {lag.version} of {table}"
        if lag.since is None:
            said += ", which the clean-up of the table's log has taken away: its next run fails"
            do = (
                "put an older copy of the log's files back, or rebuild the state from bronze: "
                f"`./stateful rebuild {lag.stream} --apply`"
            )
            found.append(FINDINGS["reader_cut_off"].found(table, said, do))
        elif now - lag.since > retained * LOG_SHARE:
            said += f", of {lag.since:%Y-%m-%d %H:%M} UTC: from {lag.since + retained:%Y-%m-%d} on the log has it no more"
            do, day = "run the stream before that", timedelta(days=1)
            figures = {"figure": (now - lag.since) / day, "limit": retained * LOG_SHARE / day}
            found.append(FINDINGS["reader_behind"].found(table, said, do, unit="days", **figures))
    return found


@dataclass(frozen=True)
class Needed:
    """The first version of bronze that a stream's next run reads."""

    version: int
    is_gone: bool  # from the log: the next run cannot go on
    made_at: datetime | None  # None: the log no longer has its commit
    retained: timedelta  # by the log

    @property
    def is_growing_old(self) -> bool:
        """True if the next run has to read a heartbeat, before the log is cut there."""
        age = None if self.made_at is None else datetime.now(UTC) - self.made_at
        return age is not None and age > self.retained * LOG_SHARE


def needed_commit(lake: Lake, generations: Generations, bronze: Table | None) -> Needed | None:
    """The version that the next run reads first; None when that is still to come, or all of bronze."""
    start = _start(lake, generations)
    if start is None or bronze is None:
        return None
    (first, is_snapshot), known = start, bronze.delta.metadata()
    if first.table_id != str(known.id) or first.version > bronze.version:
        return None
    commit = read_actions(lake, bronze.path, first.version)
    made = None if commit is None else made_at(commit)
    is_gone = _is_unreadable(bronze.path, first.version) if is_snapshot else made is None
    retained = retention(known.configuration, LOG_RETENTION)
    return Needed(first.version, is_gone, made, retained=retained)


def refuse_cut_off(lake: Lake, generations: Generations, bronze: Table | None) -> None:
    """Raise LakeError when bronze's log no longer has what the next run reads first."""
    stream, needed = generations.stream, needed_commit(lake, generations, bronze)
    if bronze is not None and needed is not None and needed.is_gone:
        raise LakeError(
            f"{stream} would go on with version {needed.version} of {bronze.path}, but the "
            "clean-up of the table's log has taken that away. Put an older copy of the log's files "
            "back, or rebuild the state from bronze, which has all its rows",
            code="cleaned_up_version",
            subject=subject_of(bronze.path),
            command=f"./stateful rebuild {stream} --apply",
        )


def _start(lake: Lake, generations: Generations) -> tuple[BronzePosition, bool] | None:
    """The position at which the newest batch began, with True if it read a snapshot; None before the first."""
    row = generations.current
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    begun = newest_begun(lake, checkpoint)
    if not begun and row is not None and is_rebuilt(row):
        return BronzePosition(row["bronze_id"], row["bronze_version"] + 1), False
    if begun is None:
        return None
    position = read_position(lake, f"{checkpoint}/offsets/{max(begun - 1, 0)}")
    if begun > 0:
        return position, False
    return BronzePosition(position.table_id, position.version - 1), True


def _is_unreadable(bronze: str, version: int) -> bool:
    """True if the log has neither commits nor a checkpoint to open that version by."""
    try:
        return open_table(bronze, version=version).version() != version
    except LakeError:
        return True
