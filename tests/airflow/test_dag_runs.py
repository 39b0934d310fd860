"""Real Dag runs of a stream: Airflow's own loop, spark-submit, and the table that they fill."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from deltalake import DeltaTable

from include.lake.ops import last_run, read_measured, read_ops
from include.lake.paths import Lake
from include.stream.checkpoint import measure_checkpoint
from tests.airflow_runs import run_script
from tests.dags import LATER, ROOT, land, lived, settle

HOUR = timedelta(hours=1)
MAINTENANCE = ("check_checkpoint", "compact_state", "tune_rocksdb")
PATHS = ("run_stream", "restate_interval", "rebuild")
TASKS = ("ingest", *PATHS, *MAINTENANCE, "publish", "alert")
pytestmark = [pytest.mark.airflow, pytest.mark.e2e]
RUN_DAG = """
import json, sys
from dataclasses import replace
from datetime import datetime
from airflow.dag_processing.dagbag import DagBag
from airflow.models import dagrun
from airflow.sdk.exceptions import AirflowFailException
from include.settings import Limits
from include.streams import user_counts
options = json.loads(sys.argv[1])
create = dagrun.get_or_create_dagrun
def create_of_type(session, **given):
    run_id = f"manual__{options['logical_date']}"
    run = create(session=session, **given | {"run_id": run_id})
    run.run_type = options["run_type"]
    for date in options["queued"]:
        other = {"logical_date": datetime.fromisoformat(date), "run_id": f"manual__{date}"}
        create(session=session, **given | other).state = "queued"
    for stream in options["due"]:
        key = {"dag_id": f"stream_{stream}", "run_id": run_id, "run_type": "scheduled"}
        dates = {date: given[date] for date in ("logical_date", "run_after")}
        session.add(dagrun.DagRun(**key, **dates, state="queued"))
    session.commit()
    return run
dagrun.get_or_create_dagrun = create_of_type
limits = Limits(replay_versions=options["replay_versions"])
user_counts.STREAM = replace(user_counts.STREAM, limits=limits)
dag = DagBag(options["file"]).dags[f"stream_{options['stream']}"]
def fail_after(hook):
    def failing(context):
        hook(context)
        raise AirflowFailException("as the test asks for")
    return failing
for task in map(dag.get_task, options["failing"]):
    task._pre_execute_hook = fail_after(task._pre_execute_hook)
run = dag.test(
    logical_date=datetime.fromisoformat(options["logical_date"]),
    run_conf={"rebuild": options["rebuild"]},
)
states = {ti.task_id: ti.state for ti in run.get_task_instances()}
print("RESULT", json.dumps(states | {"the run": run.state}))
"""


def run_dag(
    environment: dict[str, str],
    replay_versions: int = 20,
    run_type: str = "manual",
    logical_date: datetime | None = None,
    *,
    rebuild: bool = False,
    queued: Sequence[datetime] = (),
    failing: Sequence[str] = (),
    stream: str = "user_counts",
    due: Sequence[str] = (),
) -> dict[str, str]:
    """The states of the tasks and of the run, with this limit on change logs to replay.

    `queued` are the logical dates of other runs that wait, `due` the streams whose Dags have a run
    of the same name; of the tasks those that are `failing` do so in place of starting a JVM.
    """
    options = {
        "file": str(ROOT / "dags" / "streams.py"),
        "replay_versions": replay_versions,
        "run_type": run_type,
        "logical_date": (logical_date or datetime.now(UTC)).isoformat(),
        "rebuild": rebuild,
        "queued": [date.isoformat() for date in queued],
        "failing": list(failing),
        "stream": stream,
        "due": list(due),
    }
    return run_script(RUN_DAG, [json.dumps(options)], environment)


def outcome(*succeeded: str, **others: str) -> dict[str, str]:
    """These tasks and the run have succeeded, or as given, and all other tasks were skipped."""
    tasks = dict.fromkeys(TASKS, "skipped") | dict.fromkeys(succeeded, "success")
    return {"the run": "success"} | tasks | others


@pytest.mark.spark
def test_dag_runs_fill_the_table_compact_the_state_and_start_no_jvm_for_nothing(
    lake, airflow_environment
):
    land_hours(lake, range(4))
    at_once = {"replay_versions": 20, "logical_date": datetime(2026, 3, 2, tzinfo=UTC)}
    first = run_dag(airflow_environment, **at_once, due=["user_sessions"])
    uncompacted = ("ingest", "run_stream", "check_checkpoint", "tune_rocksdb", "publish")
    assert first == outcome(*uncompacted)
    # The events of the last hour are within the watermark's delay: not complete yet.
    assert counts(lake) == {("ann", 3), ("bob", 3)}
    until = last_run(lake, "user_counts")["until"]
    assert until < datetime(2026, 3, 1, 3, tzinfo=UTC)

    # What was due with it was taken along: its own run has it done, and cares for it.
    another = run_dag(airflow_environment, **at_once, stream="user_sessions")
    assert another == outcome("run_stream", "check_checkpoint", "tune_rocksdb", "publish")
    runs = read_ops(lake, "runs", {"job": "run_stream"}).to_pylist()
    assert sorted(run["subject"] for run in runs) == ["user_counts", "user_sessions"]

    nothing_new = run_dag(airflow_environment, replay_versions=0)
    assert nothing_new == outcome()

    land_hours(lake, range(4, 6))
    compacting = run_dag(airflow_environment, replay_versions=0)
    assert compacting == outcome(*uncompacted, "compact_state")
    assert counts(lake) == {("ann", 5), ("bob", 5)}
    *_, before = read_measured(lake, "user_counts")["user_counts"]
    after = measure_checkpoint(lake, "user_counts", 1).measured
    assert before.replay_versions > 0 == after.replay_versions

    # An update table shows the live state: no JVM starts for an interval of it.
    backfill = {"run_type": "backfill", "logical_date": datetime(2026, 3, 1, 1, tzinfo=UTC)}
    assert run_dag(airflow_environment, **backfill) == outcome("restate_interval")
    assert read_ops(lake, "runs", {"job": "restate_interval"}).num_rows == 0


def test_a_backfill_of_what_is_not_complete_makes_its_run_red(airflow_environment):
    red = run_dag(airflow_environment, run_type="backfill", logical_date=LATER)
    # Not green for want of a failed task at the end: publish runs whatever has failed.
    failed = {"restate_interval": "failed", "the run": "failed"}
    after_it = dict.fromkeys(("rebuild", *MAINTENANCE), "upstream_failed")
    assert red == outcome(**failed, **after_it)


def test_a_rebuild_waits_for_the_queued_runs_and_makes_the_run_red_when_it_fails(
    lake, airflow_environment
):
    lived(lake)
    settle(lake, LATER + HOUR)
    at = LATER - HOUR
    # No JVM: nothing of an update table is restated, and the rebuild would begin.
    backfill = {"run_type": "backfill", "logical_date": at, "rebuild": True}
    options = backfill | {"failing": ["rebuild"]}
    # The interval of the one that is queued is not complete yet: it would be refused.
    red = run_dag(airflow_environment, **options, queued=[LATER + HOUR])
    after_it = dict.fromkeys(MAINTENANCE, "upstream_failed") | {"the run": "failed"}
    assert red == outcome("restate_interval", rebuild="failed", **after_it)
    waiting = run_dag(airflow_environment, **options, queued=[LATER - 2 * HOUR])
    assert waiting == outcome("restate_interval")


def land_hours(lake: Lake, hours: range) -> None:
    """An event of each user at each of the hours, in a file of its own."""
    events = [
        {
            "user_id": user,
            "event_time": f"2026-03-01T{hour:02}:00:00Z",
            "event_type": "view",
            "value": 1,
        }
        for hour in hours
        for user in ("ann", "bob")
    ]
    land(lake, *map(json.dumps, events), file=f"{hours.start}.jsonl")


def counts(lake: Lake) -> set[tuple[str, int]]:
    rows = DeltaTable(lake.table("user_counts")).to_pyarrow_table().to_pylist()
    return {(row["user_id"], row["total_count"]) for row in rows}
