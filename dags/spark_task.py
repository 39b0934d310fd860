"""The Spark tasks of all Dags: a job of `spark_jobs/` as a task, and how one is skipped.

No Dag is defined here: those that are import it.
"""

import logging
from datetime import timedelta
from typing import Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.spark_conf import job_conf
from include.spark_submit import SPARK_SUBMIT, jars_argument, job_environment, job_path
from include.streams import Stream

log = logging.getLogger(__name__)


def spark_task(job: str, args: list[str], stream: Stream | None, **options: Any) -> Any:
    """A task that runs a Spark job just as `make stream` would."""
    return SparkSubmitOperator(
        conn_id="spark_default",
        # On the operator: a connection may only name three binaries.
        spark_binary=str(SPARK_SUBMIT),
        application=str(job_path(job)),
        application_args=[*args, "--dag-run-id", "{{ dag_run.run_id }}"],
        jars=jars_argument(),
        conf=job_conf(stream),
        env_vars=job_environment(),
        retries=2,
        # What a retry heals (a lease still held, a file being replaced) heals soon.
        retry_delay=timedelta(seconds=30),
        **options,
    )


def skip(reason: str) -> NoReturn:
    """Skip the task. Airflow says only that it was skipped, not why."""
    log.info("skipped: %s", reason)
    raise AirflowSkipException(reason)
