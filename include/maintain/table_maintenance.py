"""Maintenance of tables: plan what to optimize and vacuum by each table's figures, and carry it out.

`ops` tables and ingest logs are maintained here, by delta-rs, which writes them; others by Spark's
job `maintain_table`. Checkpoints that a rebuild has replaced go when their time is over.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.catalogue import FINDINGS
from include.fold.admission import instant_of
from include.lake.delta_log import delta_table, first_line, open_table
from include.lake.errors import LakeError, how_to_mend
from include.lake.generations import read_generations
from include.lake.lease import LeaseTakenError, hold_lease
from include.lake.ops import (
    SCHEMAS,
    Finding,
    compact,
    despite_others,
    finding_lines,
    record_findings,
)
from include.lake.paths import Lake
from include.lake.table import Table
from include.registry import all_streams, source_names, stream_names
from include.settings import TABLE_MAINTENANCE, Stream, TableMaintenance
from include.spark.submit import run_job, say
from include.stream.bronze import (
    FILE_RETENTION,
    LOG_RETENTION,
    lag_findings,
    read_lags,
    retention,
    why_not_vacuum,
)
from include.text_table import bytes_text, counted, first_names

log = logging.getLogger("table_maintenance")
EVER = datetime.max.replace(tzinfo=UTC)


class Files(NamedTuple):
    """Some files of a table."""

    number: int
    bytes: int

    def text(self, kind: str) -> str:
        """Return their number and size in words."""
        return f"{counted(self.number, kind)} ({bytes_text(self.bytes)})"


class TableFigures(NamedTuple):
    """The files of a table's newest version."""

    small: Files  # those with others to be joined with in their partition
    garbage: Files  # those that VACUUM would delete now
    lost: list[str]  # those that are gone, or have another size


def read_figures(lake: Lake, path: str, table: DeltaTable, small_file_bytes: int) -> TableFigures:
    """Read the figures of `table` at `path`. Files below `small_file_bytes` are small."""
    on_disk = dict(_data_files(lake, path))
    # A dry run also names files that an earlier VACUUM has deleted, and Hadoop's checksum files.
    garbage = on_disk.keys() & table.vacuum(dry_run=True, full=True)
    adds = pa.table(table.get_add_actions(flatten=True))
    files = zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True)
    small = adds.filter(pc.less(adds["size_bytes"], small_file_bytes))
    columns = [f"partition.{name}" for name in table.metadata().partition_columns]
    sums = small.group_by(columns).aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    joined = sums.filter(pc.greater(sums["size_bytes_count"], 1))
    of_joined = (joined["size_bytes_count"], joined["size_bytes_sum"])
    return TableFigures(
        small=Files(*(pc.sum(column).as_py() or 0 for column in of_joined)),
        garbage=Files(len(garbage), sum(on_disk[name] for name in garbage)),
        lost=sorted(name for name, size in files if on_disk.get(unquote(name)) != size),
    )


def _data_files(lake: Lake, path: str) -> Iterator[tuple[str, int]]:
    """The names and sizes in bytes of the files below the table's folder, without its log."""
    folder = lake.path_in_filesystem(path)
    for info in lake.filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        name = info.path.removeprefix(f"{folder}/")
        in_log = name.startswith("_delta_log/")
        if info.type == fs.FileType.File and not in_log and not info.base_name.startswith("."):
            yield name, info.size


@dataclass(frozen=True)
class MaintainedTable:
    """A table of the lake. Each has one engine that joins and deletes its files."""

    name: str  # below the lake, such as bronze/signals
    path: str
    lease: str | None  # of Spark's job on it; None for a table that delta-rs maintains


def maintained_tables(lake: Lake) -> list[MaintainedTable]:
    """All declared tables of the lake, also those that are not there yet."""
    leases: dict[str, str | None] = {}
    for source in source_names():
        leases |= {f"{kind}/{source}": f"ingest-{source}" for kind in ("bronze", "quarantine")}
        leases[f"ingest_log/{source}"] = None
    for stream in stream_names():
        leases |= {f"{kind}/{stream}": f"stream-{stream}" for kind in ("tables", "dead_letters")}
    leases |= {f"ops/{name}": None for name in SCHEMAS}
    return [MaintainedTable(name, f"{lake.root}/{name}", lease) for name, lease in leases.items()]


@dataclass(frozen=True)
class TablePlan:
    """The plan of one table; `figures` is None when it is not there, or cannot be read."""

    table: MaintainedTable
    figures: TableFigures | None = None
    optimize: bool = False
    vacuum: bool = False
    reasons: Sequence[str] = ()
    findings: Sequence[Finding] = ()

    @property
    def needs_maintenance(self) -> bool:
        return self.optimize or self.vacuum


def plan_table_maintenance(lake: Lake, limits: TableMaintenance, now: datetime) -> list[TablePlan]:
    """Plan the maintenance of all tables."""
    return [plan_of(lake, table, limits, now) for table in maintained_tables(lake)]


def record_plan_findings(lake: Lake, plans: Sequence[TablePlan]) -> None:
    """Append the findings of the plans to `ops/findings`, under the tables' names."""
    for plan in plans:
        record_findings(lake, None, plan.table.name, findings=plan.findings)


def plan_of(
    lake: Lake, table: MaintainedTable, limits: TableMaintenance, now: datetime
) -> TablePlan:
    """Plan the maintenance of one table; one that cannot be read gets a finding."""
    if not lake.is_delta_table(table.path):
        return TablePlan(table)
    try:
        log = open_table(table.path)
        figures = read_figures(lake, table.path, log, small_file_bytes=limits.small_file_bytes)
    except (LakeError, DeltaError, OSError) as error:
        why = f"{table.path} cannot be read: {first_line(error)}"
        return TablePlan(table, findings=(FINDINGS["table_unreadable"].found(table.name, why),))
    small, garbage, lost = figures
    # Streams read bronze commit by commit; other tables are read as of now.
    is_bronze = table.name.startswith("bronze/")
    refusal, findings = _guard(lake, table, log, now=now) if is_bronze else (None, [])
    if lost:
        gone = counted(len(lost), "file")
        said = f"{table.name} has lost {gone} of its newest version: {first_names(lost)}"
        action = str(how_to_mend(table.name))
        found = FINDINGS["files_lost"].found(table.name, said, count=len(lost), action=action)
        findings.append(found)
    reasons = []
    if is_joined := small.number >= limits.min_small_files:
        reasons.append(f"optimize {small.text('small file')}")
    is_much = (
        garbage.bytes >= limits.min_garbage_bytes or garbage.number >= limits.min_garbage_files
    )
    if is_deleted := is_much and refusal is None:
        reasons.append(f"vacuum {garbage.text('file')} that no version needs")
    elif is_much:
        said = f"{table.name} keeps {garbage.text('file')} that VACUUM would delete: {refusal}"
        found = FINDINGS["vacuum_refused"].found(table.name, said, count=garbage.number)
        findings.append(found)
    acts = {"optimize": is_joined, "vacuum": is_deleted}
    return TablePlan(table, figures, **acts, reasons=reasons, findings=findings)


def _guard(
    lake: Lake, table: MaintainedTable, log: DeltaTable, now: datetime
) -> tuple[str | None, list[Finding]]:
    """The reason not to vacuum, if any, and findings on streams that are too far behind for the log."""
    configuration = log.metadata().configuration
    try:
        file_retention = retention(configuration, FILE_RETENTION)
        log_retention = retention(configuration, LOG_RETENTION)
        lags = read_lags(lake, table.path, log)
    except LakeError as error:
        return str(error), []
    found = lag_findings(table.name, lags, log_retention, now=now)
    return why_not_vacuum(lags, file_retention, now), found


def format_plan(plans: Sequence[TablePlan]) -> str:
    """Return the plans for a terminal: reasons and findings of the tables that have some."""
    lines = []
    for plan in plans:
        found = finding_lines(map(vars, plan.findings))
        lines += [f"  {plan.table.name}: {line}" for line in (*plan.reasons, *found)]
    return "\n".join(["table maintenance:", *(lines or ["  nothing to do"])])


def carry_out(
    lake: Lake, plan: TablePlan, optimize: Callable[[], object], vacuum: Callable[[], object]
) -> None:
    """Carry a plan out by the functions of the engine that writes the table."""
    if plan.optimize:
        optimize()
    if plan.vacuum:
        vacuum()
    Table.open(lake, plan.table.path).keep_record()


def old_generations(lake: Lake, stream: Stream, now: datetime) -> list[int]:
    """The replaced generations of `stream` that are older than its `keep_generations`."""
    row, retained = read_generations(lake, stream.name).current, stream.savepoints.keep_generations
    at_us = None if row is None else row["switched_at_us"]
    if row is None or at_us is None or instant_of(at_us) + retained > now:
        return []
    folders = _folders(lake, stream)
    return [number for number in range(1, row["generation"]) if str(number) in folders]


def unknown_folders(lake: Lake, stream: Stream) -> list[str]:
    """The folders among the stream's checkpoints that are of no generation."""
    row = read_generations(lake, stream.name).current
    known = set() if row is None else set(map(str, range(1, row["generation"] + 1)))
    return [name for name in _folders(lake, stream) if row is not None and name not in known]


def _folders(lake: Lake, stream: Stream) -> list[str]:
    return lake.folders(f"{lake.root}/checkpoints/{stream.name}")


def delete_generations(lake: Lake, stream: Stream, now: datetime) -> None:
    """Delete the checkpoints of the stream's `old_generations`. Under its lease."""
    for number in old_generations(lake, stream, now):
        checkpoint = lake.checkpoint(stream.name, number)
        lake.filesystem.delete_dir(lake.path_in_filesystem(checkpoint))
        log.info("deleted %s", checkpoint)


def maintain_ops(
    lake: Lake, streams: Sequence[Stream], limits: TableMaintenance = TABLE_MAINTENANCE
) -> None:
    """Maintain all that needs no JVM: old checkpoints, `ops` and ingest logs, while jobs write to them."""
    now = datetime.now(UTC)
    for stream in streams:
        _delete_old_generations(lake, stream, now)
    for table in maintained_tables(lake):
        if table.lease is None and (plan := plan_of(lake, table, limits, now)).needs_maintenance:
            log.info("%s: %s", table.name, "; ".join(plan.reasons))
            # The target is that of small files: with Spark's, more than planned would be rewritten.
            optimize = partial(compact, table.path, limits.small_file_bytes)
            acts = (optimize, partial(_vacuum, table.path))
            carry_out(lake, plan, *(partial(despite_others, act) for act in acts))
            # These tables have many short readers, which then read fewer commits.
            open_table(table.path).create_checkpoint()


def _vacuum(path: str) -> None:
    delta_table(path).vacuum(dry_run=False, full=True)


def _delete_old_generations(lake: Lake, stream: Stream, now: datetime) -> None:
    if not old_generations(lake, stream, now):
        return
    try:
        with hold_lease(lake, f"stream-{stream.name}"):
            delete_generations(lake, stream, now)
    except LeaseTakenError as error:
        log.info("checkpoints of %s are left for the next day: %s", stream.name, error)


def format_old_generations(lake: Lake, streams: Sequence[Stream], now: datetime) -> str:
    """Return the checkpoints to delete for a terminal; empty without any."""
    return "\n".join(
        f"  to delete: {lake.checkpoint(stream.name, number)}"
        for stream in streams
        for number in old_generations(lake, stream, now)
    )


def maintain_tables(lake: Lake, dry_run: bool) -> int:
    """Plan, show and apply; return the exit code of the Spark job, or 0."""
    now, streams = datetime.now(UTC), all_streams()
    plans = plan_table_maintenance(lake, TABLE_MAINTENANCE, now)
    say(format_plan(plans))
    if old := format_old_generations(lake, streams, now):
        say(old)
    if dry_run:
        return 0
    record_plan_findings(lake, plans)
    names = [plan.table.name for plan in plans if plan.table.lease and plan.needs_maintenance]
    code = run_job("maintain_table", ["--tables", *names, "--lake", lake.root]) if names else 0
    maintain_ops(lake, streams)
    return code
