"""The master of jobs, by setting: which there are, and the errors for a wrong or absent one."""

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.spark_task import SparkJobOperator
from include.cli.__main__ import main
from include.ingest.ingest import ingest
from include.registry import source_named, stream_named
from include.settings import PROJECT
from include.spark import submit
from include.spark.conf import check_reachable, checked_master, is_local
from tests.dags import land
from tests.refused import refused

CLUSTERS = [
    "spark://spark-master:7077",
    "spark://10.0.0.7:7077",
    "spark://one.example.org:7077,two.example.org:7077",
    "spark://[::1]:7077",
    "yarn",
    "k8s://https://10.0.0.1:6443",
    "k8s://https://cluster.example.org",
    "k8s://localhost:8001",
]
LOCALS = ["local", "local[*]", "local[2]", "local[4,2]", "local[*,3]"]
WRONG = [
    "",
    " local[*]",
    "local[0]",
    "local[]",
    "local-cluster[2,1,1024]",
    "localhost:7077",
    "spark:/x",
    "spark://",
    "spark://host",
    "spark://host:7077/",
    "spark://host:7077,",
    "spark://host:7077,other",
    "yarn://",
    "yarn-client",
    "k8s://",
    "mesos://host:5050",
    "spark://host:7077 --conf x=y",
]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody else gets meanwhile: bound, and not listened on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("master", LOCALS + CLUSTERS)
def test_a_master_is_taken_as_it_is(master):
    assert checked_master(master) == master
    assert is_local(master) == (master in LOCALS)


@pytest.mark.parametrize("master", WRONG)
def test_what_is_no_master_is_refused_with_its_setting(master):
    with refused("wrong_setting", subject="SPARK_MASTER"):
        checked_master(master)


def test_a_master_that_answers_is_reachable_and_so_is_one_of_two(open_port, closed_port):
    check_reachable(f"spark://127.0.0.1:{open_port}")
    check_reachable(f"spark://127.0.0.1:{closed_port},127.0.0.1:{open_port}")


@pytest.mark.parametrize("master", [*LOCALS, "yarn", "k8s://https://unknown.invalid:6443"])
def test_only_a_standalone_master_is_asked(master):
    check_reachable(master)


def test_a_master_that_does_not_answer_is_named_with_its_setting(closed_port):
    master = f"spark://127.0.0.1:{closed_port}"
    for each in (master, "spark://unknown.invalid:7077"):
        with refused("unreachable_master", subject="SPARK_MASTER"):
            check_reachable(each)


def ingest_one(lake) -> None:
    """So that the stream has a row to read, which takes a JVM."""
    event = {"user_id": "a", "event_type": "click", "value": 1.0}
    land(lake, json.dumps(event | {"event_time": "2026-03-01T00:00:00Z"}))
    assert ingest(lake, source_named("user_events")).rows_bronze == 1


@pytest.mark.parametrize("master", ["spark:/x", "localhost:7077", "spark://127.0.0.1:{closed}"])
def test_a_command_ends_with_one_line_and_starts_no_jvm(
    master, closed_port, lake, monkeypatch, capsys
):
    ingest_one(lake)
    monkeypatch.setenv("SPARK_MASTER", master.format(closed=closed_port))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("started a job"))
    assert main(["stream", "user_counts", "--lake", lake.root]) == 2
    said = capsys.readouterr().err
    assert (len(said.splitlines()), "SPARK_MASTER" in said) == (1, True)


def started_on(master: str, monkeypatch) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a job that is started by hand under SPARK_MASTER."""
    started = []

    def run(command, env, **_):
        started.append((command, env))
        return type("Done", (), {"returncode": 0})

    monkeypatch.setenv("SPARK_MASTER", master)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("SPARK_LOG_LEVEL", "warn")
    monkeypatch.setattr("subprocess.run", run)
    assert submit.run_job("run_stream", [], stream_named("user_counts")) == 0
    (job,) = started
    return job


def test_only_a_driver_whose_workers_are_in_it_is_bound_to_this_machine(open_port, monkeypatch):
    _, environment = started_on("local[2]", monkeypatch)
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    command, environment = started_on(f"spark://127.0.0.1:{open_port}", monkeypatch)
    assert command[command.index("--master") + 1] == f"spark://127.0.0.1:{open_port}"
    assert "SPARK_LOCAL_IP" not in environment


# A task of a Dag: the connection says where, and what went before it may skip the task.


def connect(monkeypatch, **connection) -> None:
    given = {"conn_type": "spark"} | connection
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(given))


def a_task(**options) -> SparkJobOperator:
    return SparkJobOperator(
        job="run_stream", arguments=["--stream", "user_counts"], task_id="job", **options
    )


def execute(task: SparkJobOperator) -> tuple[str, dict[str, str]]:
    """The master on the command line, and the environment, that spark-submit would get."""
    started = []

    def submit(hook: SparkSubmitHook, application: str) -> None:
        command = hook._build_spark_submit_command(application)
        started.append((command[command.index("--master") + 1], hook._env))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSubmitHook, "submit", submit)
        task.execute({"dag_run": SimpleNamespace(run_id="d1")})
    (job,) = started
    return job


def test_a_task_runs_where_the_connection_says_whatever_spark_master_is(open_port, monkeypatch):
    monkeypatch.setenv("SPARK_MASTER", "local[*]")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    connect(monkeypatch, host=f"spark://127.0.0.1:{open_port}")
    master, environment = execute(a_task())
    assert master == f"spark://127.0.0.1:{open_port}"
    assert environment["PYTHONPATH"] == str(PROJECT)
    assert "SPARK_LOCAL_IP" not in environment


@pytest.mark.parametrize(
    "host",
    [None, "spark://127.0.0.1:{closed}", "", "127.0.0.1:7077", "mesos://host:5050", "spark:/x"],
)
def test_a_connection_to_no_master_fails_for_good_and_an_absent_one_is_tried_again(
    host, closed_port, monkeypatch
):
    """Airflow finds none, either, while its API or its database is away."""
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    if host is not None:
        connect(monkeypatch, host=host.format(closed=closed_port))
    with pytest.raises(AirflowException) as error:
        execute(a_task())
    is_absent = host is None or "{closed}" in host
    assert isinstance(error.value, AirflowFailException) is not is_absent
