"""What the commands that run without Airflow share: a job started here, and words for who waits."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from include.spark_submit import job_environment, submit_command
from include.streams import Stream


def run_job(
    job: str, args: Sequence[str], stream: Stream | None = None, stdout: TextIO | None = None
) -> int:
    """Run a job to its end; its exit code. What it says goes to `stdout`, if not to ours."""
    command = submit_command(job, args, stream)
    environment = os.environ | job_environment()
    return subprocess.run(command, env=environment, stdout=stdout, check=False).returncode


def absolute_lake(lake: str) -> str:
    """`lake` whatever the working directory: jobs and Airflow have others."""
    return lake if "://" in lake else str(Path(lake).absolute())


def say(line: str) -> None:
    """A line for people, at once even when the output is a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
