"""Deploy a change: plan all streams by their files, show the plan to a person, carry it out when approved.

docs/plan.md says what a plan is; `./stateful plan` and `apply` are the same by hand.

| task | what it does | skipped when |
|---|---|---|
| `plan` | the plan, in its log and for `approve`; changes nothing | never |
| `approve` | waits for a person: *Required Actions* in the menu of Airflow, or the task's own tab. Rejects after a day | nothing is to do |
| `choose_streams` | stores what was approved, and chooses the tasks of the streams to rebuild | rejected |
| *apply*: `apply_<stream>` | takes in what the stream's parents have written anew, and rebuilds it if it is not right then; its Dag waits meanwhile | rejected, or not to be rebuilt |

What needs a run only is left to the stream's Dag. A stream comes behind those that it reads: a red `apply` stops those behind it, and no other.

When it is red: a plan that is not what it was needs a new one: trigger the Dag again. Else retry or clear the task: what is done is left out. If an
`apply` was killed, table and state are as before, or the rebuild is done.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, TaskGroup, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.spark_task import SparkJobOperator, skip
from include.airflow.assets import stream_pool
from include.lake.errors import SettingsError
from include.registry import declared, descendants_of, parents_of, source_named
from include.settings import Stream, default_lake
from include.steps import Start

log = logging.getLogger(__name__)

STREAMS = declared().streams
NAMES = [stream.name for stream in STREAMS]
ALL = "all streams"
PARAMS = {
    "only": Param(
        ALL,
        type="string",
        enum=[ALL, *NAMES, *(f"{name}+" for name in NAMES if descendants_of(name))],
        description="One stream; with + those behind it, too.",
    ),
    "forward": Param(
        [],
        type="array",
        items={"type": "string", "enum": NAMES},
        examples=NAMES,
        description="Streams whose rows of the former code stay, back to a savepoint of it.",
    ),
}
PLAN_TIMEOUT = timedelta(minutes=30)
ANSWER_TIMEOUT = timedelta(days=1)  # an older plan says too little of what would be done
APPLY_TIMEOUT = timedelta(days=1)  # a person has seen the estimate: longer is a hanging job

BODY = """{{ ti.xcom_pull(task_ids='plan')['text'] }}

*Approve* carries it out, over bronze as it is then. *Reject* changes nothing."""

# Planning reads tables: it is not imported at each parse of this file.


def made_plans(lake: str, params: Any) -> tuple[Any, Any]:
    """The plan of all streams, and of those that were chosen."""
    from include.lake.paths import open_lake
    from include.stream.deploy_plan import make_plan

    whole = make_plan(open_lake(lake), params["forward"])
    return whole, whole if params["only"] == ALL else whole.only(params["only"])


@task(retries=2, execution_timeout=PLAN_TIMEOUT)
def plan(lake: str, params: Any) -> dict[str, str]:
    """Write the plan to the log, and return it for `approve`."""
    _, made = made_plans(lake, params)
    text = made.markdown(f"Plan {made.plan_id}, {datetime.now(UTC):%F %R} UTC")
    log.info("%s", text)
    if not made.steps:
        skip("nothing is to do")
    return {"id": made.plan_id, "text": text}


# A branch: who has nothing to do costs no process.
@task.branch(retries=2, execution_timeout=PLAN_TIMEOUT)
def choose_streams(lake: str, params: Any, ti: Any) -> list[str]:
    from include.lake.paths import open_lake
    from include.stream.deploy_plan import approve

    whole, made = made_plans(lake, params)
    try:
        approve(open_lake(lake), whole, made, plan_id=ti.xcom_pull("plan")["id"])
    except SettingsError as error:
        raise AirflowFailException(str(error)) from error
    return [f"apply_{step.stream}" for step in made.steps if step.is_rebuild]


@contextmanager
def start(context: Any, lake: str, stream: Stream) -> Iterator[Start]:
    """The rebuild that is left to do of what was approved."""
    from include.lake.paths import open_lake
    from include.run_local import ingest
    from include.stream.approvals import approved_only, read_approval
    from include.stream.deploy_plan import step_left

    opened, plan_id = open_lake(lake), context["ti"].xcom_pull("plan")["id"]
    if parents_of(stream.name) and (code := ingest(opened, source_named(stream.source))):
        raise AirflowException(f"the ingestion of {stream.source} ends with {code}")
    is_forward = stream.name in context["params"]["forward"]
    try:
        approved = read_approval(opened, plan_id) or {}
        step = step_left(opened, stream.name, approved, plan_id, is_forward=is_forward)
    except SettingsError as error:
        raise AirflowFailException(str(error)) from error
    if step is None or step.options is None:  # it is right, or its next run makes it so
        yield Start(is_done=True)
        return
    with approved_only():
        yield Start(arguments=["--options", step.options.text()])


def apply_rebuild(stream: Stream, lake: str) -> Any:
    return SparkJobOperator(
        job="rebuild_stream",
        arguments=["--stream", stream.name, "--lake", lake],
        stream=stream,
        start=partial(start, lake=lake, stream=stream),
        task_id=f"apply_{stream.name}",
        pool=stream_pool(stream),
        # Not skipped with a parent that is right.
        trigger_rule="none_failed_min_one_success",
        execution_timeout=APPLY_TIMEOUT,
    )


with DAG(
    dag_id="deploy",
    description="What the streams' files change in the lake: plan, approval, apply",
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
        subject="Apply plan {{ ti.xcom_pull(task_ids='plan')['id'] }}?",
        body=BODY,
        defaults="Reject",
        response_timeout=ANSWER_TIMEOUT,
    )
    chosen = choose_streams(root)
    plan(root) >> approve >> chosen
    # One node of the graph until somebody opens it, however many streams there are.
    with TaskGroup("apply", tooltip="each behind those that it reads", prefix_group_id=False):
        applied = {stream.name: apply_rebuild(stream, root) for stream in STREAMS}
    for name, applies in applied.items():
        [chosen, *(applied[parent] for parent in parents_of(name))] >> applies
