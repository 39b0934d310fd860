"""The Spark tasks of all Dags: a job of `spark_jobs/` as a task, and how one is skipped.

No Dag is defined here: those that are import it.
"""

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import Connection
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

from include.lake.errors import SettingsError
from include.settings import PROJECT, Stream
from include.spark.conf import MasterUnreachableError, check_reachable, checked_master, conf_on
from include.spark.submit import SPARK_SUBMIT, conf_of, jars_to_ship, job_environment, job_path
from include.steps import JobStep, SourceRun, Start, Step, StreamRun

log = logging.getLogger(__name__)

CONNECTION = "spark_default"
SETTING = f"the host of Airflow's connection {CONNECTION}"


class SparkJobOperator(SparkSubmitOperator):
    """spark-submit where the connection says, once that is known to be a master that answers.

    `start`: what there is to do this time. Its context is left when the job has ended.
    """

    def __init__(
        self,
        *,
        start: Callable[[Any], AbstractContextManager[Start]] = lambda _: nullcontext(Start()),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._starting = start
        self._start = Start()
        self._held = ExitStack()
        self._process = SubprocessHook()

    def execute(self, context: Any) -> None:
        with self._held:
            if self._start.is_done:
                log.info("nothing is left to do: another run has done it, or a first try")
            elif self._start.command:
                self._run_here([*self._start.command, *self.application_args])
            else:
                super().execute(context)

    def _run_here(self, command: list[str]) -> None:
        ended = self._process.run_command(command, cwd=str(PROJECT))
        if ended.exit_code:
            raise AirflowException(f"exit code {ended.exit_code}: {ended.output}")

    def on_kill(self) -> None:
        if self._start.command:
            self._process.send_sigterm()
        else:
            super().on_kill()

    def pre_execute(self, context: Any) -> None:
        """After the task's own `pre_execute`: a task that is skipped needs no master.

        Nor does one that needs no JVM. Raises AirflowFailException for a connection that no retry mends, AirflowException for
        one that is not found, and for a master that does not answer.
        """
        with ExitStack() as held:
            self._start = held.enter_context(self._starting(context))
            if not (self._start.is_done or self._start.command):
                self._prepare_jvm()
            self._held = held.pop_all()

    def _prepare_jvm(self) -> None:
        connection = _connection()
        try:
            master = checked_master(_master_of(connection), SETTING)
            check_reachable(master, SETTING)
            self.application_args = [*self.application_args, *self._start.arguments]
            self.conf = {**self.conf, **conf_on(master)}
            self.jars = jars_to_ship(master, self.application_args) or None
            self.env_vars = job_environment(master)
        except MasterUnreachableError as error:
            raise AirflowException(str(error)) from error
        except SettingsError as error:
            raise AirflowFailException(str(error)) from error
        if master.startswith("k8s://"):
            # There the hook has them for the driver's pod only; our driver is this machine's.
            os.environ.update(self.env_vars)
        self._hook = self._get_hook()
        if self._hook._connection["master"] != master:
            # It has looked the connection up again, and takes YARN when it does not find it.
            raise AirflowException(NOT_FOUND)


# Airflow says so as well when its API or its database did not answer: worth a retry.
NOT_FOUND = (
    f"the connection {CONNECTION} was not found: if it is missing, add it (type spark, with the "
    "master as its host) or set AIRFLOW_CONN_SPARK_DEFAULT"
)


def _connection() -> Connection:
    try:
        connection: Connection = SparkSubmitHook.get_connection(CONNECTION)
    except AirflowNotFoundException as error:
        raise AirflowException(NOT_FOUND) from error
    if connection.extra_dejson.get("deploy-mode") == "cluster":
        raise AirflowFailException(
            f"the connection {CONNECTION} has the deploy-mode cluster: jobs run in client mode, "
            "as their drivers need the project"
        )
    return connection


def _master_of(connection: Connection) -> str:
    """By the rule of SparkSubmitHook, which keeps it to itself."""
    host, port = connection.host or "", connection.port
    is_whole = connection.conn_type == "spark" and host and ("://" in host or not port)
    url = host if is_whole else f"{connection.conn_type}://{host}"
    return f"{url}:{port}" if port else url


def spark_task(job: str, args: list[str], stream: Stream | None, **options: Any) -> Any:
    """A task that runs a Spark job just as `./stateful stream` would."""
    return SparkJobOperator(
        conn_id=CONNECTION,
        # On the operator: a connection may only name three binaries.
        spark_binary=str(SPARK_SUBMIT),
        application=str(job_path(job)),
        application_args=[*args, "--dag-run-id", "{{ dag_run.run_id }}"],
        conf=conf_of(args, stream),
        retries=2,
        # What a retry heals (a lease still held, a file being replaced) heals soon.
        retry_delay=timedelta(seconds=30),
        **options,
    )


def before(context: Any, step: Step, run_of: Callable[[Any], StreamRun | SourceRun]) -> None:
    """Skip the task, if its step is left out this time; fail for good where that cannot be."""
    run = run_of(context)
    if not step.is_of(run):
        skip(f"{step.name} is no step of a {run.path} run")
    step.wait(run)
    try:
        reason = step.why_not(run)
    except SettingsError as error:
        raise AirflowFailException(str(error)) from error
    if reason and not step.is_done(run):  # what comes after one that is done is to come
        skip(reason)


def job_task(
    step: JobStep,
    args: list[str],
    stream: Stream | None,
    *,
    run_of: Callable[[Any], StreamRun | SourceRun],
    **options: Any,
) -> Any:
    """The task of a step that has a job; `run_of` is what it is taken for, by the task's context."""
    return spark_task(
        step.job,
        args,
        stream,
        task_id=step.name,
        pre_execute=partial(before, step=step, run_of=run_of),
        start=lambda context: step.start(run_of(context)),
        **options,
    )


def skip(reason: str) -> NoReturn:
    """Skip the task. Airflow says only that it was skipped, not why."""
    log.info("skipped: %s", reason)
    raise AirflowSkipException(reason)
