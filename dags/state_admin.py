"""Rebuild a stream: make the plan, show it to a person, and carry it out when approved.

docs/backfills.md says what a rebuild is and what its parameters do.

| task | what it does | skipped when |
|---|---|---|
| `plan` | the plan, in its log and for `approve`; changes nothing | never |
| `approve` | waits for a person: *Required Actions* in the menu of Airflow, or the task's own tab. Rejects after a day | never |
| `choose_stream` | chooses the task that has the stream's pool | rejected |
| *apply*: `apply_<stream>` | the rebuild, with the parameters that were approved, over bronze as it is by then; the stream's Dag waits meanwhile | rejected, or another stream |

When it is red: a red `plan` had a wrong parameter: correct it and trigger the Dag again. Retry or clear a red `apply`: it
makes its plan again. If it was killed, table and state are as before, or the rebuild is done.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, TaskGroup, task
from airflow.sdk.exceptions import AirflowFailException

from dags.spark_task import SparkJobOperator
from include.airflow.assets import stream_pool
from include.lake.errors import SettingsError
from include.registry import declared, stream_named
from include.settings import Stream, default_lake
from include.steps import Start

log = logging.getLogger(__name__)

STREAMS = declared().streams


def _count(description: str) -> Param:
    return Param(None, type=["null", "integer"], minimum=1, description=description)


PARAMS = {
    # Without a default: a person must have chosen.
    "stream": Param(
        type="string",
        enum=[stream.name for stream in STREAMS],
        description="The stream to rebuild.",
    ),
    "buckets": _count("Of the new state. Empty: as now."),
    "partitions": _count("State partitions of the new state. Empty: as now."),
    "until": Param(
        None,
        type=["null", "string"],
        description="An earlier instant (UTC) to go back to, such as 2026-01-05T13:00:00Z. "
        "Empty: all of bronze that is complete.",
    ),
    "full_refresh": Param(
        False, type="boolean", description="From the beginning, whatever savepoints there are."
    ),
    "migrate_state": Param(
        False, type="boolean", description="Map the states to a new schema, by migrate_state."
    ),
}
PLAN_TIMEOUT = timedelta(minutes=30)
ANSWER_TIMEOUT = timedelta(days=1)  # an older plan says too little of what would be done
APPLY_TIMEOUT = timedelta(days=1)  # a person has seen the estimate: longer is a hanging job

BODY = """{{ ti.xcom_pull(task_ids='plan') }}

*Approve* carries it out, over bronze as it is then. *Reject* changes nothing."""


@task(retries=2, execution_timeout=PLAN_TIMEOUT)
def plan(lake: str, params: Any) -> str:
    """Write the plan to the log, and return it for `approve`; fails without retry when the plan is refused."""
    # Not for each parse of this file: planning reads tables.
    from include.lake.errors import LakeError
    from include.lake.paths import open_lake
    from include.stream.open_stream import open_stream
    from include.stream.rebuild_plan import RebuildOptions, plan_rebuild

    try:
        options = RebuildOptions.of(params)
        opened = open_stream(open_lake(lake), stream_named(params["stream"]))
        found = plan_rebuild(opened, options)
    except (SettingsError, LakeError) as error:
        raise AirflowFailException(str(error)) from error
    log.info("%s", found.text())
    return found.text()


# A branch, as a task's pool is fixed before the stream is known.
@task.branch(retries=2, execution_timeout=PLAN_TIMEOUT)
def choose_stream(params: Any) -> str:
    return f"apply_{params['stream']}"


def start(context: Any) -> AbstractContextManager[Start]:
    """The job's arguments from the parameters; a wrong instant is refused before a JVM starts."""
    from include.stream.rebuild_plan import RebuildOptions

    return nullcontext(Start(arguments=["--options", RebuildOptions.of(context["params"]).text()]))


def apply_rebuild(stream: Stream, lake: str) -> Any:
    return SparkJobOperator(
        job="rebuild_stream",
        arguments=["--stream", stream.name, "--lake", lake],
        stream=stream,
        start=start,
        task_id=f"apply_{stream.name}",
        pool=stream_pool(stream),
        execution_timeout=APPLY_TIMEOUT,
    )


with DAG(
    dag_id="state_admin",
    description="A rebuild of a stream: plan, approval, apply",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    params=PARAMS,
    default_args={"owner": "data-platform"},
    tags=["stream", "maintenance"],
):
    root = default_lake()
    approve = ApprovalOperator(
        task_id="approve",
        subject="Rebuild {{ params.stream }}?",
        body=BODY,
        defaults="Reject",
        response_timeout=ANSWER_TIMEOUT,
    )
    # One node of the graph until somebody opens it, however many streams there are.
    with TaskGroup("apply", tooltip="of the chosen stream, in its pool", prefix_group_id=False):
        applied = [apply_rebuild(stream, root) for stream in STREAMS]
    plan(root) >> approve >> choose_stream() >> applied
