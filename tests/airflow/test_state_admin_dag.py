"""The Dag of a rebuild: what it asks for, what it shows, and that only an approved one is applied."""

import json
from copy import deepcopy
from itertools import product

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from include.airflow.assets import is_ours, stream_pool
from include.fold.admission import parse_instant
from include.lake.generations import read_generations
from include.registry import all_streams
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs import rebuild_stream
from tests.airflow_runs import run_script
from tests.dags import ROOT, bring_late_row, job_of, load_dags

FILE = "dags/state_admin.py"
APPLY = {f"apply_{stream.name}" for stream in all_streams()}
NOTHING = {
    "stream": "user_counts",
    "buckets": None,
    "partitions": None,
    "until": None,
    "full_refresh": False,
    "migrate_state": False,
}


@pytest.fixture
def dag(lake):
    return load_dags(lake.root, FILE)["state_admin"]


def test_a_person_stands_between_the_plan_and_the_one_rebuild(dag):
    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "plan": {"approve"},
        "approve": {"choose_stream"},
        "choose_stream": APPLY,
        **{name: set() for name in APPLY},
    }
    assert {task.trigger_rule for task in dag.tasks} == {"all_success"}
    assert (dag.schedule, dag.get_task("approve").defaults) == (None, ["Reject"])


def test_each_stream_is_rebuilt_in_its_own_pool(dag):
    for stream in all_streams():
        params = {"stream": stream.name}
        chosen = dag.get_task("choose_stream").python_callable(params=params)
        apply = dag.get_task(chosen)
        assert apply.pool == stream_pool(stream)
        assert is_ours(apply.pool)
        arguments = rebuild_stream.parse_args(job_of(apply, {"params": NOTHING}).arguments)
        assert (apply.job, arguments.stream) == ("rebuild_stream", stream.name)


def test_what_a_person_enters_is_checked_before_anything_runs(dag):
    def entered(**params: object) -> dict:
        asked = deepcopy(dag.params)
        asked.update(params)
        return asked.validate()

    assert entered(stream="user_counts") == NOTHING
    given = {"buckets": 100, "partitions": 7, "until": "2026-01-05", "full_refresh": True}
    assert entered(stream="user_counts", **given) == NOTHING | given
    wrong = [
        {},
        {"stream": "unknown"},
        {"buckets": 0},
        {"partitions": 1.5},
        {"full_refresh": "yes"},
    ]
    for params in wrong:
        with pytest.raises(ParamValidationError):
            entered(**({"stream": "user_counts"} if params else {}) | params)


def test_the_job_is_given_what_the_person_entered_beside_its_own_arguments(lake):
    apply = load_dags(lake.root, FILE)["state_admin"].get_task("apply_user_counts")
    # An empty field of the form may come as an empty text.
    until = (None, "", "2026-01-05", "2026-01-05T13:00:00Z")
    for values in product((None, 100), (None, 7), until, (False, True), (False, True)):
        params = dict(zip(NOTHING, ("user_counts", *values), strict=True))
        parsed = rebuild_stream.parse_args(job_of(apply, {"params": params}).arguments)
        given = RebuildOptions.of(json.loads(parsed.options))
        instant = params["until"] and parse_instant("UNTIL", params["until"])
        expected = params | {"until": instant or None, "forward": False}
        assert {"stream": parsed.stream, **vars(given)} == expected


def plan(dag, **params: object) -> str:
    task = dag.get_task("plan")
    return task.python_callable(*task.op_args, **task.op_kwargs, params=NOTHING | params)


def test_the_plan_is_for_a_person_to_read_and_changes_nothing(lake, dag):
    bring_late_row(lake)
    text = plan(dag, buckets=100)
    assert [said for said in ("\n- replays", "100 buckets") if said not in text] == []
    assert "--apply" not in text  # that is for who plans by hand
    assert read_generations(lake, "user_counts").current is None


def test_what_cannot_be_planned_is_said_in_one_line_and_not_tried_again(lake, dag):
    bring_late_row(lake)
    with pytest.raises(AirflowFailException):
        plan(dag, until="soon")
    with pytest.raises(AirflowFailException):
        plan(dag, until="2026-03-09")


# Real runs.

# dag.test() sleeps while it waits for a person: the answer is given then, as Airflow's API does.
RUN_ADMIN = """
import json, sys, time
from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.dagbag import DagBag
from airflow.models.hitl import HITLDetail
from airflow.utils.session import create_session
from sqlalchemy import select
file, marked, *answers = sys.argv[1:]
asked = []
sleep = time.sleep
def answer_or_sleep(seconds):
    with create_session() as session:
        detail = session.scalar(select(HITLDetail).where(HITLDetail.responded_at.is_(None)))
        if detail is None:
            return sleep(seconds)
        task = detail.task_instance
        asked.append([detail.subject, detail.body])
        update_hitl_detail(
            task.dag_id, task.run_id, task.task_id,
            UpdateHITLDetailPayload(chosen_options=[answers[len(asked) - 1]]),
            user=SimpleAuthManagerUser(username="ann", role="admin"),
            session=session,
        )
time.sleep = answer_or_sleep
runs = []
for _ in answers:
    dag = DagBag(file).dags["state_admin"]  # a run changes it
    conf = {"stream": "user_counts", "buckets": 9}
    run = dag.test(run_conf=conf, mark_success_pattern=marked)
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    runs.append(states | {"the run": run.state})
print("RESULT", json.dumps([runs, asked]))
"""


def run_dag(environment: dict[str, str], *answers: str, marked: str = "nothing") -> tuple:
    """The states of the tasks and of the run, for each answer; and what the person was asked.

    `marked` is a pattern of the tasks that succeed without being run.
    """
    return run_script(RUN_ADMIN, [str(ROOT / FILE), marked, *answers], environment)


def outcome(*succeeded: str) -> dict[str, str]:
    names = ("plan", "approve", "choose_stream", *APPLY)
    return (
        {"the run": "success"}
        | dict.fromkeys(names, "skipped")
        | dict.fromkeys(succeeded, "success")
    )


@pytest.mark.e2e
@pytest.mark.airflow
def test_a_rejected_plan_is_not_applied_and_an_approved_one_is(lake, airflow_environment):
    bring_late_row(lake)
    runs, asked = run_dag(airflow_environment, "Reject", "Approve", marked="apply_.*")
    applied = ("plan", "approve", "choose_stream", "apply_user_counts")
    assert runs == [outcome("plan", "approve"), outcome(*applied)]
    (subject, body), again = asked
    assert again == [subject, body]
    assert ("user_counts" in subject, " 9 buckets" in body) == (True, True)
