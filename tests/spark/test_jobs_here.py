"""A task of a Dag: the process of its job, with a JVM or without, its failure, its end."""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk.exceptions import AirflowException

from dags.spark_task import SparkJobOperator, Start
from include.settings import PROJECT

ARGUMENTS = ["--source", "signals"]
CONTEXT = {"dag_run": SimpleNamespace(run_id="scheduled__1")}
TELLS = """
import json, os, sys
json.dump([sys.argv[2:], os.getcwd()], open(sys.argv[1], "w"))
"""
WAITS = """
import signal
print("started", flush=True)
signal.pause()
"""


def task_that(given: Callable[[Any], Start], held: list[str] | None = None) -> SparkJobOperator:
    held = [] if held is None else held

    @contextmanager
    def start(context: Any) -> Iterator[Start]:
        held.append("others")
        try:
            yield given(context)
        finally:
            held.clear()

    task: SparkJobOperator = SparkJobOperator(
        job="ingest_source", arguments=ARGUMENTS, start=start, task_id="job"
    )
    return task


@pytest.fixture(autouse=True)
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a task which asks for a master fails."""
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)


def test_the_command_gets_the_job_s_arguments_and_needs_no_master(tmp_path: Path):
    told = tmp_path / "told"
    command = [sys.executable, "-c", TELLS, str(told)]
    task_that(lambda _: Start(command=command, arguments=["--more"])).execute(CONTEXT)
    arguments, folder = json.loads(told.read_text())
    assert arguments == [*ARGUMENTS, "--more", "--dag-run-id", "scheduled__1"]
    assert folder == str(PROJECT)


@pytest.mark.parametrize(("master", "can_begin"), [("local[2]", True), ("no master", False)])
def test_what_it_holds_is_held_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, master: str, can_begin: bool
):
    held: list[str] = []
    ran: list[list[str]] = []

    def submit(hook: SparkSubmitHook, application: str) -> None:
        ran.append([*held, *hook._application_args[-4:-2]])

    connection = json.dumps({"conn_type": "spark", "host": master})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    with suppress(AirflowException):
        task_that(lambda _: Start(arguments=["--also", "others"]), held).execute(CONTEXT)
    assert ran == [["others", "--also", "others"]] * can_begin
    assert not held


def test_what_another_task_has_done_needs_no_master_and_runs_nothing():
    task_that(lambda _: Start(is_done=True)).execute(CONTEXT)


def test_a_command_that_fails_fails_the_task_with_its_last_line():
    command = [sys.executable, "-c", "import sys; sys.exit('no lake at x')"]
    with pytest.raises(AirflowException, match="no lake at x"):
        task_that(lambda _: Start(command=command)).execute(CONTEXT)


def test_a_task_that_is_killed_ends_its_command(monkeypatch: pytest.MonkeyPatch):
    started = Event()

    def info(text: str, *given: object) -> None:
        if given == ("started",):  # the hook has read that: it knows the process by then
            started.set()

    monkeypatch.setattr(SubprocessHook, "log", SimpleNamespace(info=info))
    task = task_that(lambda _: Start(command=[sys.executable, "-c", WAITS]))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(task.execute, CONTEXT)
        started.wait()
        task.on_kill()
        with pytest.raises(AirflowException):
            running.result()
