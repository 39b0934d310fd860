"""One Dag per stream: ingest what has landed, drain it into the table, maintain the state, notify readers.

A run reads all that is new, whatever its data interval: a stream's position is its checkpoint. A run that
finds nothing new is skipped without starting a JVM. Only a backfill run is about its interval. Repeating a
run, by hand or on retry, is always safe. With `on_arrival` (docs/operate.md) it also runs when something has come.

A scheduled run skips the group *backfill*, a backfill skips *maintenance*. `run_stream`, `restate_interval`, `rebuild`
and `compact_state` start a JVM; `ingest` does above the source's `spark_bytes` or `spark_messages`; no other does.

| task | what it does | skipped when |
|---|---|---|
| `ingest` | files in `landing/<source>` to `bronze/<source>`, bad rows to `quarantine/<source>`; a heartbeat, if the source has a clock | nothing has landed, and no heartbeat is due |
| `run_stream` | new bronze rows through the fold into `tables/<stream>` | it is a backfill, or there is nothing to do: nothing new in bronze, no rebuild to begin with, and the table is what was recorded of it |
| `restate_interval` | computes the rows of the run's interval again, late rows included, and replaces them: `ops/runs`; downstream it looks whether to rebuild | it is no backfill; downstream, the input comes to the same rows |
| `rebuild` | rebuilds the live state (late rows, other code), and all rows from the first instant on that is not right | it is no backfill with the parameter `rebuild`, more of its runs are queued, or the live state is right; `restate_interval` was |
| `check_checkpoint` | measures the checkpoint, holds it and the run against the stream's limits, and the table against what is recorded of it: `ops/figures`, `ops/findings` | `run_stream` was; not reached behind a rebuild that failed |
| `compact_state` | uploads snapshots of the state and deletes what no start needs, as a run of its own | the check saw nothing to gain |
| `tune_rocksdb` | judges the change of a RocksDB setting that is on trial, or proposes one | `run_stream` was |
| `publish` | an event of the stream's Asset: rows written, `complete_until`, state, open findings; or the interval, and what changed in it; and whether to go downstream | neither has changed the table, or it has failed |
| `alert` | tells the notifiers of `include/streams/notify.py`, and its log, which findings have opened and closed (docs/operate.md) | none has, or it is a backfill |

Streams that share a source take turns to ingest it, by pools of one slot, and share a JVM for small runs of one instant:
`run_stream` is green without one if another stream's has drained it, too.

**Backfills** take in late rows: *Trigger*, *Backfill*, the dates, *All Runs*. Each run restates from its logical date
to the next tick of the schedule; its note says what changed. With the parameter `rebuild`, for which *Override parameters on
existing runs* is ticked, the last run rebuilds the live state, too. More is in docs/backfills.md.

**A chain**: the Dag of a stream that reads another one's table also starts when that has published. With the parameter `downstream` a run, of a backfill the
last one, tells it to: it takes in what has changed, rebuilds if that makes other rows, and tells those behind it.

When it is red: the task log has the job's error, and `ops/runs` every run. Retrying or clearing the failed task continues where it
stopped. A red `check_checkpoint` says what a person must do; the rows of that run are in the table, and published.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from airflow.sdk import DAG, Param, TaskGroup, task
from airflow.sdk.exceptions import AirflowFailException

from dags.spark_task import before, ingest_task, job_task, skip
from include.airflow.alerts import deadline, tell
from include.airflow.arrival import schedule_of
from include.airflow.assets import bronze_asset, stream_doc, stream_pool, table_asset
from include.airflow.dag_run import (
    DOWNSTREAM,
    KEY,
    event_extra,
    failed_tasks,
    interval_of,
    is_backfill,
    is_downstream,
    path_of,
    run_note,
    task_states,
)
from include.registry import declared, source_named
from include.settings import Stream, default_lake
from include.steps import STEPS, Step, StreamRun

log = logging.getLogger(__name__)

# Airflow has "null" for a task that waits for others.
NOT_BEGUN = ["null", "scheduled", "queued"]
# States of a task that has run or never will.
ENDED = ["success", "failed", "skipped", "upstream_failed", "removed"]

GROUPS = {
    "run": "ingest what has landed, and drain it into the table",
    "backfill": "backfill runs only: restate the interval, late rows included",
    "maintenance": "after a run: check, compaction, RocksDB's memory",
}

PARAMS = {
    "rebuild": Param(
        False,
        type="boolean",
        title="rebuild",
        description="Backfills only: rebuild the live state at the end, so that it has the late rows, too.",
    ),
    DOWNSTREAM: Param(
        False,
        type="boolean",
        title=DOWNSTREAM,
        description="Rebuild the streams behind this table, too, where their input has changed; of a backfill at its end.",
    ),
}


def stream_run(context: Any, lake: str, stream: Stream) -> StreamRun:
    """The run of the stream's steps for this Dag run."""
    # Reading a lake needs a second of imports: not at every parse of this file.
    from include.lake.paths import open_lake

    dag_run = context["dag_run"]

    def queued(dates: Sequence[datetime]) -> int:
        count, dag_id = context["ti"].get_dr_count, context["dag"].dag_id
        return int(count(dag_id=dag_id, logical_dates=list(dates), states=["queued"]))

    def unrestated(dates: Sequence[datetime]) -> int:
        its = {"dag_id": context["dag"].dag_id, "task_ids": ["restate_interval"]}
        return int(context["ti"].get_ti_count(**its, logical_dates=list(dates), states=NOT_BEGUN))

    def is_due(other: Stream) -> bool:
        """True if the other stream's Dag has a run with the same id, made for the same instant, still to do."""
        ti, its = context["ti"], {"dag_id": dag_id_of(other), "run_ids": [dag_run.run_id]}
        if not ti.get_dr_count(**its, states=["queued", "running"]):
            return False
        # Once it has run, nothing of this Dag run would tell of more.
        return not ti.get_ti_count(**its, task_ids=["run_stream"], states=ENDED)

    start, until = interval_of(dag_run, stream.schedule)
    return StreamRun(
        open_lake(lake),
        stream,
        path=path_of(dag_run, context["params"]),
        start=start,
        until=until,
        is_rebuilding=bool(context["params"]["rebuild"]),
        queued=queued,
        unrestated=unrestated,
        is_due=is_due,
        dag_run_id=dag_run.run_id,
    )


def trigger_rule(step: Step) -> str:
    """Airflow's trigger rule for the steps that it needs (`after`) and those that it only waits for (`behind`)."""
    if step.after and step.behind:
        return "none_failed_min_one_success"
    return "none_failed" if step.behind else "all_success"


def step_task(step: Step, stream: Stream, lake: str) -> Any:
    """The task of a step, named as the step."""
    run_of = partial(stream_run, lake=lake, stream=stream)
    options: dict[str, Any] = {"run_of": run_of, "trigger_rule": trigger_rule(step)}
    if step.look is not None:
        return look_task(step, stream, **options)
    if step.is_of_source:
        return ingest_task(source_named(stream.source), lake, **options)
    return job_task(step, lake, stream.name, stream, pool=stream_pool(stream), **options)


def look_task(
    step: Step, stream: Stream, run_of: Callable[[Any], StreamRun], **options: Any
) -> Any:
    @task(
        task_id=step.name,
        pool=stream_pool(stream),
        retries=2,
        **options,
        pre_execute=partial(before, step=step, run_of=run_of),
    )
    def look(**context: Any) -> None:
        """Write what is found to the log and `ops`; fail only if a person is needed."""
        assert step.look is not None
        report = step.look(run_of(context))
        log.info("%s", report.text)
        if report.wrong:
            raise AirflowFailException(report.wrong)

    return look()


def alert_task(stream: Stream, lake: str) -> Any:
    table, bronze = table_asset(stream, lake), bronze_asset(source_named(stream.source), lake)

    # A task of its own: readers of the table do not wait for a notifier that does not answer.
    @task(
        task_id="alert",
        pool=stream_pool(stream),
        inlets=[table, bronze],
        retries=2,
        trigger_rule="none_failed",
    )
    def alert(dag_run: Any, ti: Any, asset_state_store: Any, **context: Any) -> None:
        """Notify of findings of the stream and of its source that opened or closed; their Assets store what is known."""
        from include.lake.paths import open_lake
        from include.observe.alerts import look_at

        if is_backfill(dag_run):
            skip("the next scheduled run notifies of what a backfill has opened and closed")
        now, failed = datetime.now(UTC), failed_tasks(ti, dag_run.run_id)
        looks = look_at(open_lake(lake), stream, now, failed)
        stores = {stream.source: asset_state_store[bronze], stream.name: asset_state_store[table]}
        if tell(stream.name, looks, now, stores, context | {"dag_run": dag_run, "ti": ti}) is None:
            skip("nothing has opened or closed")

    return alert()


def dag_id_of(stream: Stream) -> str:
    return f"stream_{stream.name}"


def stream_dag(stream: Stream) -> DAG:
    lake = default_lake()
    table = table_asset(stream, lake)
    bronze = bronze_asset(source_named(stream.source), lake)
    with DAG(
        dag_id=dag_id_of(stream),
        description=f"{stream.source} -> tables/{stream.name}",
        doc_md=stream_doc(stream, str(__doc__)),
        schedule=schedule_of(stream, lake),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,  # one run reads all that is new
        max_active_runs=1,
        params=PARAMS,
        deadline=deadline(stream),
        default_args={"owner": "data-platform", "execution_timeout": stream.timeout},
        tags=["stream", stream.source],
    ) as dag:
        tasks = {}
        for group, steps in groupby(STEPS, lambda step: step.group):
            # Ids as of the steps: what asks Airflow for a task knows no group.
            with TaskGroup(group, tooltip=GROUPS[group], prefix_group_id=False):
                tasks |= {step.name: step_task(step, stream, lake) for step in steps}
        for step in STEPS:
            for earlier in (*step.after, *step.behind):
                tasks[earlier] >> tasks[step.name]

        # Also after a failed check: readers need the rows, and the findings.
        @task(
            pool=stream_pool(stream),
            inlets=[bronze],
            outlets=[table],
            retries=2,
            trigger_rule="all_done",
        )
        def publish(outlet_events: Any, dag_run: Any, ti: Any, **context: Any) -> None:
            """Emit an event of the stream's Asset if this Dag run has changed anything, or is to be followed downstream."""
            states = task_states(ti, dag_run.run_id)
            run = stream_run(context | {"dag_run": dag_run, "ti": ti}, lake, stream)
            extra = event_extra(run, states, is_downstream(dag_run, context["params"]))
            if is_backfill(dag_run) and states.get("restate_interval") == "success":
                ti.xcom_push(key=KEY, value=run_note(lake, stream, dag_run, extra))
            if extra is None:
                skip("this Dag run has not changed the table")
            outlet_events[table].extra = extra

        [tasks["compact_state"], tasks["rebuild"]] >> publish() >> alert_task(stream, lake)
    return dag


for stream in declared().streams:
    globals()[f"stream_{stream.name}"] = stream_dag(stream)
