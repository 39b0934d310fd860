"""What the commands that run without Airflow share: a job started here, and words for who waits."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from include.settings import Stream
from include.spark.master import check_reachable
from include.spark.submit import default_master, job_environment, submit_command


def run_job(
    job: str, args: Sequence[str], stream: Stream | None = None, stdout: TextIO | None = None
) -> int:
    """Run a job to its end; its exit code. What it says goes to `stdout`, if not to ours.

    Raises SettingsError, before a JVM starts, when SPARK_MASTER is no master or does not answer.
    """
    master = default_master()
    check_reachable(master)
    command = submit_command(job, args, stream, master)
    environment = os.environ | job_environment(master)
    return subprocess.run(command, env=environment, stdout=stdout, check=False).returncode


def absolute_lake(lake: str) -> str:
    """`lake` whatever the working directory: jobs and Airflow have others."""
    return lake if "://" in lake else str(Path(lake).expanduser().absolute())


def say(line: str) -> None:
    """A line for people, at once even when the output is a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
