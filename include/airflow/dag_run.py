"""What a Dag run of a stream is for, as its tasks see it."""

from datetime import datetime
from typing import Any


def is_backfill(dag_run: Any) -> bool:
    """By its type: *All Runs* makes a backfill of a scheduled run, which keeps its run id."""
    return bool(dag_run.run_type == "backfill")


def interval_of(dag_run: Any, schedule: str) -> tuple[datetime | None, datetime | None]:
    """The interval that it takes in, or recomputes; of a manual run without a logical date it is empty.

    Of a backfill as it is planned, by the schedule of now: a run that *All Runs* makes once more
    keeps the data interval of when it was made, by an earlier schedule or by hand.
    """
    if not is_backfill(dag_run):
        return dag_run.data_interval_start, dag_run.data_interval_end
    # Planning reads a lake, which needs a second of imports: not at every parse of the Dags.
    from include.plans.plan_backfill import next_tick

    return dag_run.logical_date, next_tick(schedule, dag_run.logical_date)
