"""The care of ops tables and ingest logs, by delta-rs, which writes them, and of old generations: no JVM."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyarrow import fs

from include.lake.delta_log import delta_table, open_table
from include.lake.errors import LakeError
from include.lake.generations import read_generations
from include.lake.lease import LeaseTakenError, hold_lease
from include.lake.ops import compact, despite_others
from include.lake.paths import Lake
from include.maintain.plan_care import (
    TablePlan,
    care_for,
    format_plan,
    plan_table_care,
    record_plan_findings,
)
from include.registry import all_streams
from include.settings import TABLE_CARE, Stream, TableCare
from include.spark.submit import run_job, say
from include.text_table import bytes_text

log = logging.getLogger("table_care")


@dataclass(frozen=True)
class OldGenerations:
    """Checkpoints of one stream, below its folder of them, that its newest generation has replaced."""

    expired: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()  # folders that no generation is called by


def find_old_generations(lake: Lake, stream: Stream, now: datetime) -> OldGenerations:
    """The replaced generations of `stream` whose time is over, as its `keep_generations` says."""
    folders = lake.folders(f"{lake.root}/checkpoints/{stream.name}")
    row = read_generations(lake, stream.name).current
    if row is None:
        return OldGenerations()
    old = [number for number in range(1, row["generation"]) if str(number) in folders]
    known = {str(number) for number in (*old, row["generation"])}
    over = row["switched_at"] and row["switched_at"] + stream.savepoints.keep_generations <= now
    return OldGenerations(tuple(old) if over else (), tuple(n for n in folders if n not in known))


def format_old_generations(lake: Lake, streams: Iterable[Stream], now: datetime) -> str:
    """What is deleted of the streams' checkpoints, and what is left alone, for people."""
    lines = []
    for stream in streams:
        found, folder = find_old_generations(lake, stream, now), f"checkpoints/{stream.name}"
        lines += [f"  to delete: {lake.root}/{folder}/{number}" for number in found.expired]
        lines += [
            f"  left alone: {lake.root}/{folder}/{name}, which is of no generation: move it away if it "
            "is nobody's"
            for name in found.unknown
        ]
    return "\n".join(["old generations:", *(lines or ["  nothing to delete"])])


def delete_replaced_generations(lake: Lake, stream: Stream) -> None:
    """Delete every checkpoint of `stream` but the current one, whatever its time. Under its lease."""
    forever = datetime.max.replace(tzinfo=UTC)
    for number in find_old_generations(lake, stream, forever).expired:
        _delete(lake, stream.name, number)


def delete_old_generations(lake: Lake, stream: Stream) -> list[int]:
    """Delete the checkpoints of `stream` whose time is over, under its lease; which ones.

    None are deleted when another job holds the lease: the next day will do. Raises LakeError when a folder
    cannot be deleted; what is left of it goes the next time.
    """
    if not find_old_generations(lake, stream, datetime.now(UTC)).expired:
        return []
    try:
        with hold_lease(lake, f"stream-{stream.name}"):
            expired = find_old_generations(lake, stream, datetime.now(UTC)).expired
            for number in expired:
                _delete(lake, stream.name, number)
            return list(expired)
    except LeaseTakenError as error:
        log.info("old generations of %s are left for the next day: %s", stream.name, error)
        return []


def _delete(lake: Lake, stream: str, number: int) -> None:
    checkpoint = lake.checkpoint(stream, number)
    folder = lake.path_in_filesystem(checkpoint)
    try:
        found = lake.filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
        lake.filesystem.delete_dir(folder)
    except OSError as error:
        raise LakeError(
            f"{checkpoint}, of a generation that is over, cannot be deleted ({error}): see to "
            "its permissions, or to who holds it, and repeat",
            subject=f"checkpoints/{stream}/{number}",
        ) from error
    files = [info.size for info in found if info.type == fs.FileType.File]
    log.info("deleted %s: %s files, %s", checkpoint, f"{len(files):,}", bytes_text(sum(files)))


def maintain_ops(lake: Lake, plans: Sequence[TablePlan], care: TableCare) -> None:
    """Apply the plans of the ops tables among `plans`, while streams go on writing to them."""

    def optimize(path: str) -> None:
        # It joins what is below the target: with Spark's, it would rewrite more than was planned.
        despite_others(lambda: compact(path, care.small_file_bytes))

    for plan in plans:
        if plan.table.lease is None and plan.needs_care:
            log.info("%s: %s", plan.table.name, "; ".join(plan.reasons))
            care_for(lake, plan, optimize, _vacuum)
            # Readers of these tables are many and short: each spares the commits since the last one.
            open_table(plan.table.path).create_checkpoint()


def _vacuum(path: str) -> None:
    despite_others(lambda: delta_table(path).vacuum(dry_run=False, full=True))


def run_maintenance(lake: Lake, dry_run: bool) -> int:
    """Plan, show, and apply; the exit code of the Spark job, if there was one."""
    now, streams = datetime.now(UTC), all_streams()
    plans = plan_table_care(lake, TABLE_CARE, now)
    say(format_plan(plans))
    say(format_old_generations(lake, streams, now))
    if dry_run:
        return 0
    record_plan_findings(lake, plans)
    names = [plan.table.name for plan in plans if plan.table.lease and plan.needs_care]
    code = run_job("maintain_table", ["--tables", *names, "--lake", lake.root]) if names else 0
    for stream in streams:
        delete_old_generations(lake, stream)
    maintain_ops(lake, plans, TABLE_CARE)
    return code
