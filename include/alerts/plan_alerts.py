"""What the daily look at all tables finds, as alerts: each plan looks at all, so it closes as well."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from include.alerts.record import record_changes
from include.alerts.troubles import Standing, worst
from include.care.plan_care import TablePlan
from include.lake.paths import Lake


def record_plan_alerts(
    lake: Lake, plans: Sequence[TablePlan], dag_run_id: str, now: datetime
) -> None:
    """Record what has opened and closed of the tables that `plans` are of."""
    standings = [
        Standing(
            subject=plan.table.name,
            open=worst([asdict(finding) for finding in plan.findings]),
            is_checked=True,
        )
        for plan in plans
    ]
    record_changes(lake, "table_maintenance", dag_run_id, standings, now)
