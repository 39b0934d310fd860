"""The care of all tables without Airflow: `./stateful maintain-tables`.

Shows what each table gets and why, and does it: Spark's tables in one JVM, if any needs
something, then the ops tables; and deletes the checkpoints of generations that were replaced
long ago. With --dry-run it changes nothing.
"""

from datetime import UTC, datetime

from include.care.care_report import format_plan
from include.care.maintain_ops import maintain_ops
from include.care.old_generations import delete_old_generations, format_old_generations
from include.care.plan_care import plan_table_care, record_plan_findings
from include.lake.paths import Lake
from include.limits import TABLE_CARE
from include.registry import all_streams
from include.spark.local_jobs import run_job, say


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
