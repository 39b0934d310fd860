"""What the commands that run without Airflow share: a job started here, and words for who waits."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import TextIO

from include.settings import Stream
from include.spark.master import check_reachable
from include.spark.submit import default_master, job_environment, submit_command
from include.text_table import printable

LOG_LEVEL = "SPARK_LOG_LEVEL"
HEAP_FULL = 3  # of a JVM, by ExitOnOutOfMemoryError
# For log4j2.properties and include/job.py: errors alone, each in a line.
QUIET = {LOG_LEVEL: "error", "SPARK_LOG_TRACE": "none"}
# What no level keeps away: a JVM's greeting, and what PySpark prints of each query.
NOISE = re.compile(
    r"\s*$|WARNING: Using incubator modules|(Starting )?Streaming TransformWithStateInPandas Python"
)


def run_job(
    job: str, args: Sequence[str], stream: Stream | None = None, stdout: TextIO | None = None
) -> int:
    """Run a job to its end; its exit code. What it says goes to `stdout`, if not to ours.
    Of one that was killed, or whose heap was full, the last line says with which code.

    Of Spark it says errors, unless SPARK_LOG_LEVEL in the environment says otherwise.
    Raises SettingsError, before a JVM starts, when SPARK_MASTER is no master or does not answer.
    """
    master = default_master()
    check_reachable(master)
    command = submit_command(job, args, stream, master)
    code = _run(command, os.environ | job_environment(master), stdout)
    if code == HEAP_FULL or not 0 <= code < 128:
        sys.stderr.write(f"error: {job} has ended abruptly, with exit code {code}\n")
    return code


def _run(command: Sequence[str], environment: dict[str, str], stdout: TextIO | None) -> int:
    if LOG_LEVEL in environment:
        return subprocess.run(command, env=environment, stdout=stdout, check=False).returncode
    return _run_quietly(command, environment | QUIET, stdout)


def _run_quietly(command: Sequence[str], environment: dict[str, str], stdout: TextIO | None) -> int:
    with subprocess.Popen(
        command,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as job:
        assert job.stderr is not None
        for line in job.stderr:
            if not NOISE.match(line):
                sys.stderr.write(printable(line))
    return job.returncode


def say(line: str) -> None:
    """A line for people, at once even when the output is a pipe."""
    sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()
