"""The care of the ops tables, by delta-rs, which writes them: no JVM."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from include.care.old_generations import delete_old_generations, format_old_generations
from include.care.plan_care import (
    TablePlan,
    care_for,
    format_plan,
    plan_table_care,
    record_plan_findings,
)
from include.lake.delta_log import delta_table, open_table
from include.lake.ops import compact, despite_others
from include.lake.paths import Lake
from include.limits import TABLE_CARE, TableCare
from include.registry import all_streams
from include.spark.local_jobs import run_job, say

log = logging.getLogger("table_care")


def maintain_ops(lake: Lake, plans: Sequence[TablePlan], care: TableCare) -> None:
    """Apply the plans of the ops tables among `plans`, while streams go on writing to them."""

    def optimize(path: str) -> None:
        # It joins what is below the target: with Spark's, it would rewrite more than was planned.
        despite_others(lambda: compact(path, care.small_file_bytes))

    for plan in plans:
        if plan.table.lease is None and plan.needs_care:
            log.info("%s", care_for(lake, plan, care, optimize, _vacuum))
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
