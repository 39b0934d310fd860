"""A task of a Dag that does without a JVM this time: its command, its failure, its end."""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk.exceptions import AirflowException

from dags.spark_task import SparkJobOperator, Start, spark_task
from include.settings import PROJECT

ARGUMENTS = ["--source", "signals"]
TELLS = """
import json, os, sys
json.dump([sys.argv[2:], os.getcwd()], open(sys.argv[1], "w"))
"""
WAITS = """
import signal
print("started", flush=True)
signal.pause()
"""


def a_task(here: Callable[[Any], list[str]]) -> SparkJobOperator:
    @contextmanager
    def start(context: Any) -> Iterator[Start]:
        yield Start(command=here(context))

    return task_that(start)


def task_that(start: Callable[[Any], AbstractContextManager[Start]]) -> SparkJobOperator:
    task: SparkJobOperator = spark_task(
        "ingest_source", ARGUMENTS, None, task_id="job", name="job", start=start
    )
    return task


@pytest.fixture(autouse=True)
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a task which asks for a master fails."""
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)


def test_the_command_gets_the_job_s_arguments_and_needs_no_master(tmp_path: Path):
    told = tmp_path / "told"
    asked: list[Any] = []

    def here(context: Any) -> list[str]:
        asked.append(context)
        return [sys.executable, "-c", TELLS, str(told)]

    task = a_task(here)
    task.pre_execute({"run": 1})
    task.execute({"run": 1})
    arguments, folder = json.loads(told.read_text())
    assert arguments == [*ARGUMENTS, "--dag-run-id", "{{ dag_run.run_id }}"]
    assert folder == str(PROJECT)
    assert asked == [{"run": 1}]


@pytest.mark.parametrize(("master", "can_begin"), [("local[2]", True), ("no master", False)])
def test_what_it_holds_is_held_until_it_has_ended_or_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, master: str, can_begin: bool
):
    held: list[str] = []
    ran: list[list[str]] = []

    @contextmanager
    def start(context: Any) -> Iterator[Start]:
        held.append("others")
        try:
            yield Start(arguments=["--also", "others"])
        finally:
            held.clear()

    def run(hook: SparkSubmitHook, application: str) -> None:
        ran.append([*held, *hook._application_args[-2:]])

    connection = json.dumps({"conn_type": "spark", "host": master})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    monkeypatch.setattr(SparkSubmitHook, "submit", run)
    task = task_that(start)
    with suppress(AirflowException):
        task.pre_execute({})
        task.execute({})
    assert ran == [["others", "--also", "others"]] * can_begin
    assert not held


def test_what_another_task_has_done_needs_no_master_and_runs_nothing():
    @contextmanager
    def start(context: Any) -> Iterator[Start]:
        yield Start(is_done=True)

    task = task_that(start)
    task.pre_execute({})
    task.execute({})


def test_a_command_that_fails_fails_the_task_with_its_last_line():
    task = a_task(lambda context: [sys.executable, "-c", "import sys; sys.exit('no lake at x')"])
    task.pre_execute({})
    with pytest.raises(AirflowException):
        task.execute({})


def test_a_task_that_is_killed_ends_its_command(monkeypatch: pytest.MonkeyPatch):
    started = Event()

    def info(text: str, *given: object) -> None:
        if given == ("started",):  # the hook has read that: it knows the process by then
            started.set()

    monkeypatch.setattr(SubprocessHook, "log", SimpleNamespace(info=info))
    task = a_task(lambda context: [sys.executable, "-c", WAITS])
    task.pre_execute({})
    with ThreadPoolExecutor() as pool:
        running = pool.submit(task.execute, {})
        started.wait()
        task.on_kill()
        with pytest.raises(AirflowException):
            running.result()


def test_a_task_that_needs_a_jvm_this_time_asks_for_its_master():
    commands = [[sys.executable, "-c", ""], []]
    task = a_task(lambda context: commands.pop(0))
    task.pre_execute({})
    task.execute({})
    with pytest.raises(AirflowException):
        task.pre_execute({})


def test_a_task_in_a_jvm_that_is_killed_ends_that(monkeypatch: pytest.MonkeyPatch):
    killed: list[str] = []
    task = a_task(lambda context: [])
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    task.pre_execute({})
    assert task._hook is not None
    monkeypatch.setattr(task._hook, "on_kill", lambda: killed.append("jvm"))
    task.on_kill()
    assert killed == ["jvm"]
