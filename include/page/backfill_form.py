"""A backfill before it is made: the plan of its runs, and what Airflow is asked for to make it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from include.fold.admission import parse_instant
from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.plans.open_stream import open_stream
from include.plans.plan_recompute import BackfillPlan, plan_backfill
from include.settings import SettingsError, Stream

RIGHT = "right"  # as `state_between` says


@dataclass(frozen=True, kw_only=True)
class BackfillForm:
    """What was asked for, and what would come of it: `plan`, or `refusal` says why not."""

    stream: str
    dag_id: str
    start: str
    until: str
    plan: BackfillPlan | None = None
    refusal: str | None = None

    @property
    def request(self) -> str | None:
        """The body for Airflow's `POST backfills`, as JSON; None when there is nothing to make."""
        if self.plan is None or not self.plan.runs:
            return None
        return json.dumps(backfill_request(self.dag_id, self.plan))

    @property
    def changes(self) -> int:
        """How many of the runs find a part of the table that is not right."""
        return 0 if self.plan is None else sum(run.now != RIGHT for run in self.plan.runs)


def read_form(lake: Lake, stream: Stream, dag_id: str, start: str, until: str) -> BackfillForm:
    """The form with its plan; empty dates are a form that nobody has filled in yet."""
    form = BackfillForm(stream=stream.name, dag_id=dag_id, start=start, until=until)
    if not (start and until):
        return form
    try:
        edges = [parse_instant("From", start), parse_instant("Until", until)]
        plan = plan_backfill(open_stream(lake, stream), *edges)
    except (SettingsError, LakeError) as error:
        return replace(form, refusal=str(error))
    return replace(form, plan=plan)


def backfill_request(dag_id: str, plan: BackfillPlan) -> Mapping[str, Any]:
    """What makes just the runs of `plan`, once more where there are such: *All Runs*."""
    return {
        "dag_id": dag_id,
        "from_date": plan.runs[0].start.isoformat(),
        "to_date": plan.runs[-1].start.isoformat(),
        "run_backwards": False,
        "reprocess_behavior": "completed",
        "max_active_runs": 1,
    }
