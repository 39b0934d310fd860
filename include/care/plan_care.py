"""The plan of tables' maintenance: what to optimize and vacuum today, by each table's figures, and why."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.checkpoint.bronze_readers import (
    FILE_RETENTION,
    LOG_RETENTION,
    lag_findings,
    read_lags,
    retention,
    why_not_vacuum,
)
from include.lake.delta_log import first_line, open_table, unbroken
from include.lake.findings import Finding, record_findings
from include.lake.how_to_mend import how_to_mend
from include.lake.ops import append_ops
from include.lake.ops_schemas import SCHEMAS
from include.lake.paths import Lake, LakeError
from include.limits import TableCare
from include.registry import all_sources, stream_names
from include.settings import SettingsError
from include.text_table import bytes_text, counted, first_names, text_table

READERS = 8  # of footers at once: in a store each is a request


@dataclass(frozen=True)
class Partition:
    """The files of one date, or of the whole table when it is not partitioned."""

    value: date | None
    files: int
    bytes: int
    small_files: int
    small_bytes: int


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

    Raises LakeError when it is partitioned by anything but one date.
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
    if len(columns) > 1 or kinds[columns[0]] != 'PrimitiveType("date")':
        raise LakeError(
            f"{path} is partitioned by {', '.join(columns)}: only a table of one date column, or of "
            "none, is optimized and vacuumed. Put it back as its job made it",
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


def record_sizes(
    lake: Lake,
    run_id: str | None,
    table: str,
    occasion: Literal["before", "after"],
    figures: TableFigures,
    bytes_rewritten: int | None = None,
    files_deleted: int | None = None,
) -> None:
    """Append a row to `ops/table_sizes`."""
    row = {
        "run_id": run_id,
        "measured_at": datetime.now(UTC),
        "table": table,
        "occasion": occasion,
        "version": figures.version,
        "files": figures.files,
        "bytes": figures.bytes,
        "small_files": figures.small_files,
        "files_on_disk": figures.files_on_disk,
        "bytes_on_disk": figures.bytes_on_disk,
        "bytes_rewritten": bytes_rewritten,
        "files_deleted": files_deleted,
    }
    append_ops(lake, "table_sizes", [row])


@dataclass(frozen=True)
class CaredTable:
    """A table of the lake. Each has one engine that joins and deletes its files."""

    name: str  # below the lake, such as bronze/signals
    path: str
    # What Spark's job on it holds; None for a table of small rows, which delta-rs cares for.
    lease: str | None
    # Streams read bronze commit by commit; of all others, readers take the newest version.
    is_bronze: bool = False


def cared_tables(lake: Lake) -> list[CaredTable]:
    """All tables of the lake that are known, whether they are there yet or not."""
    tables = []
    for source in (source.name for source in all_sources()):
        lease = f"ingest-{source}"
        tables.append(CaredTable(f"bronze/{source}", lake.bronze(source), lease, is_bronze=True))
        tables.append(CaredTable(f"quarantine/{source}", lake.quarantine(source), lease))
        path = lake.ingest_log(source)
        tables.append(CaredTable(f"ingest_log/{source}", path, lease=None))
    for stream in stream_names():
        tables.append(CaredTable(f"tables/{stream}", lake.table(stream), f"stream-{stream}"))
        tables.append(CaredTable(f"rejected/{stream}", lake.rejected(stream), f"stream-{stream}"))
    tables += [CaredTable(f"ops/{name}", lake.ops(name), lease=None) for name in SCHEMAS]
    return tables


def spark_tables_named(lake: Lake, names: Sequence[str]) -> list[CaredTable]:
    """The tables of those names; SettingsError for one that is not known, or not Spark's."""
    known = {table.name: table for table in cared_tables(lake) if table.lease}
    for name in names:
        if name not in known:
            raise SettingsError(
                f"unknown table {name!r}: known are {', '.join(known)}",
                code="unknown_table",
                subject=name,
            )
    return [known[name] for name in dict.fromkeys(names)]


NOT_THERE = "not there yet"


@dataclass(frozen=True)
class TablePlan:
    """What one table gets. `figures` is None when there is none, or none that can be read."""

    table: CaredTable
    figures: TableFigures | None
    optimize: tuple[Partition, ...] = ()
    vacuum: bool = False
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_missing(self) -> bool:
        return self.reasons == (NOT_THERE,)

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons) or "nothing to do"

    @property
    def needs_care(self) -> bool:
        return bool(self.optimize) or self.vacuum

    @property
    def bytes_to_rewrite(self) -> int:
        """At most: a file that finds no partner stays as it is."""
        return sum(partition.small_bytes for partition in self.optimize)


def plan_table_care(lake: Lake, care: TableCare, now: datetime) -> list[TablePlan]:
    """The plans of all tables."""
    return [_plan(lake, table, care, now=now) for table in cared_tables(lake)]


def record_plan_findings(lake: Lake, plans: Sequence[TablePlan]) -> None:
    """What the plans found, into `ops/findings`, under the tables' names."""
    for plan in plans:
        record_findings(lake, None, plan.table.name, findings=plan.findings)


def _plan(lake: Lake, table: CaredTable, care: TableCare, now: datetime) -> TablePlan:
    if not lake.is_delta_table(table.path):
        return TablePlan(table, None, reasons=(NOT_THERE,))
    try:
        log = open_table(table.path)
        figures = read_figures(lake, table.path, log, small_file_bytes=care.small_file_bytes)
        lost = lost_files(lake, table.path, log)
    except LakeError as error:
        return _unreadable(table, str(error))
    except (DeltaError, OSError) as error:  # the machine refuses it, as for want of rights
        return _unreadable(table, f"{table.path} cannot be read just now: {first_line(error)}")
    refusal, findings = _guard(lake, table, log, now=now) if table.is_bronze else (None, [])
    findings += _lost_files(table, lost)
    plan = TablePlan(table, figures, findings=tuple(findings))
    joined = [partition for partition in figures.partitions if partition.small_files > 1]
    if sum(partition.small_files for partition in joined) >= care.min_small_files:
        reasons = (f"optimize {_partitions_text(joined)}",)
        plan = replace(plan, optimize=tuple(joined), reasons=reasons)
    return _with_vacuum(plan, figures, care, refusal=refusal)


def _unreadable(table: CaredTable, why: str) -> TablePlan:
    """The others must not wait for it; and whoever writes it will fail and say so."""
    found = Finding(finding="table_unreadable", severity="warning", detail=why)
    return TablePlan(table, None, reasons=(why,), findings=(found,))


def _lost_files(table: CaredTable, lost: Sequence[str]) -> list[Finding]:
    """Also of rows that all streams have read: a recompute or reseed would find out too late."""
    if not lost:
        return []
    return [
        Finding(
            finding="files_lost",
            severity="error",
            count=len(lost),
            detail=f"{table.name} has lost {counted(len(lost), 'file')} of its newest version, "
            f"or they are damaged: {first_names(lost)}",
            action=str(how_to_mend(table.name)),
        )
    ]


def _guard(
    lake: Lake, table: CaredTable, log: DeltaTable, now: datetime
) -> tuple[str | None, list[Finding]]:
    """Why not to vacuum, if so; and the readers that are too far behind for the log."""
    configuration = log.metadata().configuration
    try:
        files_kept = retention(configuration, FILE_RETENTION)
        log_kept = retention(configuration, LOG_RETENTION)
        lags = read_lags(lake, table.path, log)
    except LakeError as error:
        return str(error), []
    return why_not_vacuum(lags, files_kept, now), lag_findings(table.name, lags, log_kept, now=now)


def _with_vacuum(
    plan: TablePlan, figures: TableFigures, care: TableCare, refusal: str | None
) -> TablePlan:
    enough_files = figures.garbage_files >= care.min_garbage_files
    if not enough_files and figures.garbage_bytes < care.min_garbage_bytes:
        return plan
    garbage = f"{counted(figures.garbage_files, 'file')} ({bytes_text(figures.garbage_bytes)})"
    if refusal is None:
        reason = f"vacuum {garbage} that no version needs"
        return replace(plan, vacuum=True, reasons=(*plan.reasons, reason))
    found = Finding(
        finding="vacuum_refused",
        severity="warning",
        detail=f"{plan.table.name} keeps {garbage} that VACUUM would delete: {refusal}",
        count=figures.garbage_files,
    )
    reason = f"no vacuum of {garbage}: {refusal}"
    return replace(plan, reasons=(*plan.reasons, reason), findings=(*plan.findings, found))


def _partitions_text(partitions: Sequence[Partition]) -> str:
    small = sum(partition.small_files for partition in partitions)
    size = bytes_text(sum(partition.small_bytes for partition in partitions))
    values = [partition.value for partition in partitions if partition.value is not None]
    of_values = f", {counted(len(values), 'date')}" if values else ""
    return f"{counted(small, 'small file')} ({size}{of_values})"


PLAN_COLUMNS = ("table", "files", "small", "bytes", "on disk", "to rewrite", "plan")
CHANGE_COLUMNS = ("when", "version", "files", "small", "bytes", "files on disk", "bytes on disk")


def format_plan(plans: Sequence[TablePlan]) -> str:
    """All tables that are there, with what they get; then the findings in full."""
    rows = [_plan_row(plan, plan.figures) for plan in plans if plan.figures]
    lines = text_table(PLAN_COLUMNS, rows, left=(0, len(PLAN_COLUMNS) - 1)) if rows else []
    missing = [plan.table.name for plan in plans if plan.is_missing]
    if missing:
        lines.append(f"  not there yet: {', '.join(missing)}")
    lines += [f"  {line}" for plan in plans for line in _finding_lines(plan)]
    return "\n".join(["table care:", *lines])


def _plan_row(plan: TablePlan, figures: TableFigures) -> tuple[str, ...]:
    return (
        plan.table.name,
        f"{figures.files:,}",
        f"{figures.small_files:,}",
        bytes_text(figures.bytes),
        bytes_text(figures.bytes_on_disk),
        bytes_text(plan.bytes_to_rewrite) if plan.optimize else "",
        plan.reason,
    )


def _finding_lines(plan: TablePlan) -> Iterator[str]:
    for found in plan.findings:
        yield f"{found.severity}: {found.detail}"
        if found.action:
            yield f"    to do: {found.action}"


def format_change(table: str, before: TableFigures, after: TableFigures) -> str:
    """A table's figures before and after its care."""
    rows = [_change_row("before", before), _change_row("after", after)]
    return "\n".join([f"{table}:", *text_table(CHANGE_COLUMNS, rows, left=(0,))])


def _change_row(occasion: str, figures: TableFigures) -> tuple[str, ...]:
    return (
        occasion,
        str(figures.version),
        f"{figures.files:,}",
        f"{figures.small_files:,}",
        bytes_text(figures.bytes),
        f"{figures.files_on_disk:,}",
        bytes_text(figures.bytes_on_disk),
    )
