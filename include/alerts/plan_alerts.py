"""What the daily look at all tables finds, as alerts: of each table that it could read it closes as well."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from include.alerts.record import record_changes, still_told
from include.alerts.troubles import Standing, worst
from include.care.plan_care import CaredTable, TablePlan
from include.lake.findings import Finding, record_findings
from include.lake.how_to_mend import how_to_mend
from include.lake.paths import Lake

BY, UNREADABLE = "table_maintenance", "table_unreadable"


def record_plan_alerts(
    lake: Lake, plans: Sequence[TablePlan], dag_run_id: str, now: datetime
) -> None:
    """Record what has opened and closed of the tables that `plans` are of.

    A table that is not there is nothing to tell of, unless something was found in it before.
    """
    were_there = {name for name, finding in still_told(lake, BY) if finding != UNREADABLE}
    standings = []
    for plan in plans:
        found, is_gone = list(plan.findings), plan.is_missing and plan.table.name in were_there
        if is_gone:
            found.append(_gone(plan.table))
            record_findings(lake, None, plan.table.name, findings=found)
        standings.append(
            Standing(
                subject=plan.table.name,
                open=worst([asdict(finding) for finding in found]),
                is_checked=plan.figures is not None or (plan.is_missing and not is_gone),
            )
        )
    record_changes(lake, BY, dag_run_id, standings=standings, now=now)


def _gone(table: CaredTable) -> Finding:
    return Finding(
        finding=UNREADABLE,
        severity="warning",
        detail=f"{table.name} is gone: there is no table at {table.path} any more",
        action=str(how_to_mend(table.name)),
    )
