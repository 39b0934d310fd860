"""What a Dag run of a stream is for, and how it stands with it, as its tasks see it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

# These end after the look of `publish`. It cannot wait for tune_rocksdb, the last task, by which a Dag
# run is red when any other has failed: behind it would come one that is run whatever has failed.
AFTER_THE_LOOK = ("tune_rocksdb", "publish", "alert")


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


def task_states(ti: Any, run_id: str) -> dict[str, str | None]:
    """Of a Dag run of the same Dag."""
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[run_id])
    return dict(states.get(run_id, {}))


def failed_tasks(ti: Any, dag_run: Any, states: Mapping[str, str | None]) -> list[str] | None:
    """Those of this Dag run, whose tasks are in these `states`, and of the one before it those that
    its own look came too early for.

    None of a backfill, of which only its own runs tell more.
    """
    if is_backfill(dag_run):
        return None
    failed = [task for task, state in states.items() if state == "failed"]
    before = ti.get_previous_dagrun()
    if before is None or is_backfill(before):
        return failed
    earlier = task_states(ti, before.run_id)
    late = [task for task in AFTER_THE_LOOK if earlier.get(task) == "failed"]
    return failed + [f"{task} of {before.run_id}" for task in late]
