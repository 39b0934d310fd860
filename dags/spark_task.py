"""Tasks that run a job of `spark_jobs/`, or the `Start.command` that does it without Spark; the reasons to skip one."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from include.airflow.assets import bronze_asset, source_assets, source_pool
from include.lake.errors import SettingsError
from include.settings import PROJECT, Source, Stream
from include.spark.conf import MasterUnreachableError, check_reachable, checked_master
from include.spark.submit import SPARK_SUBMIT, conf_of, jars_to_ship, job_environment, job_path
from include.steps import INGEST, SourceRun, Start, Step, StreamRun

log = logging.getLogger(__name__)

CONNECTION = "spark_default"
SETTING = f"the host of Airflow's connection {CONNECTION}"


class SparkJobOperator(SparkSubmitOperator):
    """Run a job as `./stateful stream` does, on the Spark master of Airflow's connection."""

    def __init__(
        self,
        *,
        job: str,
        arguments: Sequence[str],
        stream: Stream | None = None,
        start: Callable[[Any], AbstractContextManager[Start]] = lambda _: nullcontext(Start()),
        **options: Any,
    ) -> None:
        super().__init__(
            conn_id=CONNECTION,
            # On the operator: a connection may only name three binaries.
            spark_binary=str(SPARK_SUBMIT),
            application=str(job_path(job)),
            name=job,
            # What a retry heals (a lease still held, a file being replaced) heals soon.
            retries=2,
            retry_delay=timedelta(seconds=30),
            **options,
        )
        self.job = job
        self.arguments = arguments
        self._stream = stream
        self._starting = start
        self._process = SubprocessHook()

    def execute(self, context: Any) -> None:
        with self._starting(context) as start:
            if start.is_done:
                log.info("nothing is left to do: another run has done it, or a first try")
                return
            of_run = ["--dag-run-id", context["dag_run"].run_id]
            arguments = [*self.arguments, *start.arguments, *of_run]
            if not start.command:
                self._prepare(arguments)
                super().execute(context)
                return
            ended = self._process.run_command([*start.command, *arguments], cwd=str(PROJECT))
            if ended.exit_code:
                raise AirflowException(f"exit code {ended.exit_code}: {ended.output}")

    def on_kill(self) -> None:
        if self._hook is None:
            self._process.send_sigterm()
        else:
            super().on_kill()

    def _prepare(self, arguments: list[str]) -> None:
        """Set the arguments of spark-submit; raises AirflowFailException where no retry helps."""
        try:
            Connection.get(CONNECTION)  # or an error: the hook takes yarn where there is none
            master = checked_master(self._get_hook()._connection["master"], SETTING)
            check_reachable(master, SETTING)
            self.application_args = arguments
            self.conf = conf_of(arguments, self._stream, master)
            self.jars = jars_to_ship(arguments, master) or None
            self.env_vars = job_environment(master)
        except MasterUnreachableError as error:
            raise AirflowException(str(error)) from error
        except SettingsError as error:
            raise AirflowFailException(str(error)) from error
        if master.startswith("k8s://"):
            # There the hook has them for the driver's pod only; our driver is this machine's.
            os.environ.update(self.env_vars)
        self._hook = self._get_hook()


def before(context: Any, step: Step, run_of: Callable[[Any], StreamRun | SourceRun]) -> None:
    """Skip the task if its step has nothing to do; raises AirflowFailException for wrong settings."""
    run = run_of(context)
    if not step.is_of(run):
        skip(f"{step.name} is no step of a {run.path} run")
    try:
        reason = step.why_not(run)
    except SettingsError as error:
        raise AirflowFailException(str(error)) from error
    if reason:
        skip(reason)


def job_task(
    step: Step,
    lake: str,
    subject: str,
    stream: Stream | None,
    *,
    run_of: Callable[[Any], StreamRun | SourceRun],
    **options: Any,
) -> Any:
    """The task of a step that has a job; `run_of` makes the step's run from the task's context."""
    return SparkJobOperator(
        job=step.job,
        arguments=step.arguments(lake, subject),
        stream=stream,
        start=lambda context: step.start(run_of(context)),
        task_id=step.name,
        pre_execute=partial(before, step=step, run_of=run_of),
        **options,
    )


def ingest_task(source: Source, lake: str, **options: Any) -> Any:
    """The ingest task, with the Assets that it reads and writes."""
    return job_task(
        INGEST,
        lake,
        source.name,
        None,
        pool=source_pool(source.name),
        inlets=source_assets(source, lake),
        outlets=[bronze_asset(source, lake)],
        **options,
    )


def skip(reason: str) -> NoReturn:
    """Skip the task, with the reason in its log, as Airflow shows none."""
    log.info("skipped: %s", reason)
    raise AirflowSkipException(reason)
