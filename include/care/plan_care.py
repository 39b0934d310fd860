"""What to optimize and vacuum today, table by table, with the reasons; read without a JVM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.care.care_record import bytes_rewritten_since
from include.care.cared_tables import CaredTable, cared_tables
from include.care.choose_partitions import Candidate, candidates, choose
from include.care.table_figures import Partition, TableFigures, lost_files, read_figures
from include.checkpoint.bronze_readers import read_lags
from include.checkpoint.vacuum_guard import (
    FILE_RETENTION,
    LOG_RETENTION,
    lag_findings,
    retention,
    why_not_vacuum,
)
from include.lake.delta_log import first_line, open_table
from include.lake.findings import Finding, record_findings
from include.lake.how_to_mend import how_to_mend
from include.lake.paths import Lake, LakeError
from include.limits import TableCare
from include.savepoints.retention import left_over_ids
from include.text_table import bytes_text, counted, first_names

NOT_THERE = "not there yet"
Result = TypeVar("Result")


@dataclass(frozen=True)
class TablePlan:
    """What one table gets. `figures` is None when there is none, or none that can be read."""

    table: CaredTable
    figures: TableFigures | None
    optimize: tuple[Partition, ...] = ()
    vacuum: bool = False
    left_over: tuple[str, ...] = ()  # savepoints that are none: their rows are deleted
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_missing(self) -> bool:
        return self.reasons == (NOT_THERE,)

    @property
    def needs_care(self) -> bool:
        return bool(self.optimize or self.left_over) or self.vacuum

    @property
    def bytes_to_rewrite(self) -> int:
        """At most: a file that finds no partner stays as it is."""
        return sum(partition.small_bytes for partition in self.optimize)


def plan_table_care(lake: Lake, care: TableCare, now: datetime) -> list[TablePlan]:
    """The plans of all tables: the day's budget is one for all of them."""
    surveyed = [_survey(lake, table, care, now) for table in cared_tables(lake)]
    found = [
        candidate
        for plan in surveyed
        if plan.figures
        for candidate in candidates(plan.table.name, plan.figures.partitions, care)
    ]
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spent = _unless_damaged(lambda: bytes_rewritten_since(lake, midnight)) or {}
    chosen = choose(found, care, spent, midnight.date())
    return [_with_optimize(plan, care, found, chosen) for plan in surveyed]


def record_plan_findings(lake: Lake, plans: Sequence[TablePlan]) -> None:
    """What the plans found, into `ops/findings`, under the tables' names."""
    for plan in plans:
        record_findings(lake, None, plan.table.name, plan.findings)


def _survey(lake: Lake, table: CaredTable, care: TableCare, now: datetime) -> TablePlan:
    """What stands alone in a table: its figures, and whether it is vacuumed."""
    if not lake.is_delta_table(table.path):
        return TablePlan(table, None, reasons=(NOT_THERE,))
    try:
        log = open_table(table.path)
        figures = read_figures(lake, table.path, log, care.small_file_bytes)
        lost = lost_files(lake, table.path, log)
    except LakeError as error:
        return _unreadable(table, str(error))
    except (DeltaError, OSError) as error:  # the machine refuses it, as for want of rights
        return _unreadable(table, f"{table.path} cannot be read just now: {first_line(error)}")
    refusal, findings = _guard(lake, table, log, now) if table.is_bronze else (None, [])
    findings += _lost_files(table, lost)
    plan = TablePlan(table, figures, findings=tuple(findings))
    if stream := table.savepoints_of:
        left_over = _unless_damaged(lambda: left_over_ids(lake, stream, log, now)) or []
        plan = _with_left_over(plan, left_over)
    return _with_vacuum(plan, figures, care, refusal)


def _unless_damaged(read: Callable[[], Result]) -> Result | None:
    """What a record of ours says; where it is damaged, the tables go without it, and it has a plan
    and a finding of its own."""
    try:
        return read()
    except LakeError:
        return None


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
    return why_not_vacuum(lags, files_kept, now), lag_findings(table.name, lags, log_kept, now)


def _with_left_over(plan: TablePlan, left_over: Sequence[str]) -> TablePlan:
    if not left_over:
        return plan
    reason = f"delete the rows of {counted(len(left_over), 'left-over savepoint')}"
    return replace(plan, left_over=tuple(left_over), reasons=(*plan.reasons, reason))


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


def _with_optimize(
    plan: TablePlan, care: TableCare, found: Sequence[Candidate], chosen: Sequence[Candidate]
) -> TablePlan:
    ours = [candidate.partition for candidate in found if candidate.table == plan.table.name]
    optimize = [candidate.partition for candidate in chosen if candidate.table == plan.table.name]
    waiting = [partition for partition in ours if partition not in optimize]
    reasons, findings = list(plan.reasons), list(plan.findings)
    if optimize:
        reasons.insert(0, f"optimize {_partitions(optimize)}")
    if waiting:
        reasons.append(f"{_partitions(waiting)} do not fit into what is left of the day's budget")
    findings += [
        _above_budget(plan.table, partition, care)
        for partition in waiting
        if partition.small_bytes > min(care.table_bytes, care.day_bytes)
    ]
    return replace(plan, optimize=tuple(optimize), reasons=tuple(reasons), findings=tuple(findings))


def _partitions(partitions: Sequence[Partition]) -> str:
    small = sum(partition.small_files for partition in partitions)
    size = bytes_text(sum(partition.small_bytes for partition in partitions))
    values = [partition.value for partition in partitions if partition.value is not None]
    kind = "savepoint" if any(isinstance(value, str) for value in values) else "date"
    of_values = f", {counted(len(values), kind)}" if values else ""
    return f"{counted(small, 'small file')} ({size}{of_values})"


def _above_budget(table: CaredTable, partition: Partition, care: TableCare) -> Finding:
    value = f" of {partition.value}" if partition.value is not None else ""
    limit = min(care.table_bytes, care.day_bytes)
    return Finding(
        finding="optimize_above_budget",
        severity="warning",
        detail=f"{table.name}: the {partition.small_files:,} small files{value} are never joined, "
        "as they come to more than a whole day's budget",
        figure=float(partition.small_bytes),
        limit=float(limit),
        unit="bytes",
        action="raise table_bytes (and day_bytes) of TableCare in include/limits.py for a day",
    )
