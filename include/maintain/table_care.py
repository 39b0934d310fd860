"""The plan of tables' maintenance: what to optimize and vacuum today, by each table's figures, and why."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.catalogue import FINDINGS
from include.lake.delta_log import first_line, open_table
from include.lake.errors import LakeError, SettingsError, how_to_mend
from include.lake.findings import Finding, finding_lines, record_findings
from include.lake.ops import SCHEMAS
from include.lake.paths import Lake
from include.lake.table import Table
from include.registry import all_sources, stream_names
from include.settings import TableCare
from include.stream.bronze_readers import (
    FILE_RETENTION,
    LOG_RETENTION,
    lag_findings,
    read_lags,
    retention,
    why_not_vacuum,
)
from include.text_table import bytes_text, counted, first_names, text_table


@dataclass(frozen=True)
class TableFigures:
    """A version of a table. Small are files that others of their partition can be joined with; garbage is
    what its VACUUM would delete now."""

    files: int
    bytes: int
    small_files: int
    small_bytes: int
    files_on_disk: int
    bytes_on_disk: int
    garbage_files: int
    garbage_bytes: int
    lost: tuple[str, ...]  # that are gone, or of another size


def read_figures(lake: Lake, path: str, table: DeltaTable, small_file_bytes: int) -> TableFigures:
    """`table`, which lies at `path`, in figures. A file below `small_file_bytes` may be small."""
    on_disk = dict(_data_files(lake, path))
    # It also names what an earlier VACUUM has deleted, and Hadoop's checksum files.
    garbage = on_disk.keys() & table.vacuum(dry_run=True, full=True)
    adds = pa.table(table.get_add_actions(flatten=True))
    files = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True)
    small = adds.filter(pc.less(adds["size_bytes"], small_file_bytes))
    columns = [f"partition.{name}" for name in table.metadata().partition_columns]
    sums = small.group_by(columns).aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    joined = sums.filter(pc.greater(sums["size_bytes_count"], 1))
    return TableFigures(
        files=adds.num_rows,
        bytes=pc.sum(adds["size_bytes"]).as_py() or 0,
        small_files=pc.sum(joined["size_bytes_count"]).as_py() or 0,
        small_bytes=pc.sum(joined["size_bytes_sum"]).as_py() or 0,
        files_on_disk=len(on_disk),
        bytes_on_disk=sum(on_disk.values()),
        garbage_files=len(garbage),
        garbage_bytes=sum(on_disk[name] for name in garbage),
        lost=tuple(sorted(name for name, size in files if on_disk.get(unquote(name)) != size)),
    )


def _data_files(lake: Lake, path: str) -> Iterator[tuple[str, int]]:
    """Names below the table's folder, and bytes; not those of its log."""
    folder = lake.path_in_filesystem(path)
    for info in lake.filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        name = info.path.removeprefix(f"{folder}/")
        in_log = name.startswith("_delta_log/")
        if info.type == fs.FileType.File and not in_log and not info.base_name.startswith("."):
            yield name, info.size


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
        tables.append(
            CaredTable(f"dead_letters/{stream}", lake.dead_letters(stream), f"stream-{stream}")
        )
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


@dataclass(frozen=True)
class TablePlan:
    """What one table gets. `figures` is None when there is none, or none that can be read."""

    table: CaredTable
    figures: TableFigures | None = None
    optimize: bool = False
    vacuum: bool = False
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def needs_care(self) -> bool:
        return self.optimize or self.vacuum


def plan_table_care(lake: Lake, care: TableCare, now: datetime) -> list[TablePlan]:
    """The plans of all tables."""
    return [plan_of(lake, table, care, now) for table in cared_tables(lake)]


def record_plan_findings(lake: Lake, plans: Sequence[TablePlan]) -> None:
    """What the plans found, into `ops/findings`, under the tables' names."""
    for plan in plans:
        record_findings(lake, None, plan.table.name, findings=plan.findings)


def plan_of(lake: Lake, table: CaredTable, care: TableCare, now: datetime) -> TablePlan:
    """The plan of one table. For one that cannot be read the others do not wait."""
    if not lake.is_delta_table(table.path):
        return TablePlan(table)
    try:
        log = open_table(table.path)
        figures = read_figures(lake, table.path, log, small_file_bytes=care.small_file_bytes)
    except (LakeError, DeltaError, OSError) as error:
        why = f"{table.path} cannot be read: {first_line(error)}"
        unreadable = FINDINGS["table_unreadable"].found(table.name, why)
        return TablePlan(table, reasons=(why,), findings=(unreadable,))
    refusal, findings = _guard(lake, table, log, now=now) if table.is_bronze else (None, [])
    if lost := figures.lost:
        said = f"{table.name} has lost {counted(len(lost), 'file')} of its newest version: {first_names(lost)}"
        action = str(how_to_mend(table.name))
        found = FINDINGS["files_lost"].found(table.name, said, count=len(lost), action=action)
        findings.append(found)
    reasons = []
    if is_joined := figures.small_files >= care.min_small_files:
        reasons.append(f"optimize {_text(figures.small_files, figures.small_bytes, 'small file')}")
    is_much = figures.garbage_bytes >= care.min_garbage_bytes
    if is_deleted := is_much or figures.garbage_files >= care.min_garbage_files:
        garbage = _text(figures.garbage_files, figures.garbage_bytes, "file")
        reasons.append(f"vacuum {garbage} that no version needs")
        if refusal is not None:
            reasons[-1] = f"no vacuum of {garbage}: {refusal}"
            said = f"{table.name} keeps {garbage} that VACUUM would delete: {refusal}"
            count = figures.garbage_files
            findings.append(FINDINGS["vacuum_refused"].found(table.name, said, count=count))
    return TablePlan(
        table,
        figures,
        optimize=is_joined,
        vacuum=is_deleted and refusal is None,
        reasons=tuple(reasons),
        findings=tuple(findings),
    )


def _text(files: int, size: int, kind: str) -> str:
    return f"{counted(files, kind)} ({bytes_text(size)})"


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


COLUMNS = ("table", "files", "small", "bytes", "on disk", "plan")


def format_plan(plans: Sequence[TablePlan]) -> str:
    """All tables that are there, with what they get; then the findings in full."""
    rows = [_row(plan, plan.figures) for plan in plans if plan.figures]
    lines = text_table(COLUMNS, rows) if rows else []
    missing = [plan.table.name for plan in plans if not (plan.figures or plan.findings)]
    lines += [f"  not there yet: {', '.join(missing)}"] if missing else []
    for plan in plans:
        found = finding_lines(map(vars, plan.findings))
        lines += [f"  {plan.table.name}: {line}" for line in found]
    return "\n".join(["table care:", *lines])


def _row(plan: TablePlan, figures: TableFigures) -> tuple[str, ...]:
    return (
        plan.table.name,
        f"{figures.files:,}",
        f"{figures.small_files:,}",
        bytes_text(figures.bytes),
        bytes_text(figures.bytes_on_disk),
        "; ".join(plan.reasons) or "nothing to do",
    )


def care_for(
    lake: Lake,
    plan: TablePlan,
    optimize: Callable[[str], object],
    vacuum: Callable[[str], object],
) -> None:
    """Carry a plan out by the engine that cares for the table."""
    path = plan.table.path
    if plan.optimize:
        optimize(path)
    if plan.vacuum:
        vacuum(path)
    Table.open(lake, path).keep_record()
