"""What the commands that run without Airflow share: a job started here, and words for who waits."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, TextIO

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme

from include.settings import Stream
from include.spark.master import check_reachable
from include.spark.submit import default_master, job_environment, submit_command

# For log4j2.properties and include/job.py: errors alone, and each in a line. By SPARK_LOG_LEVEL=warn
# in the caller's environment all is shown.
QUIET = (
    {}
    if "SPARK_LOG_LEVEL" in os.environ
    else {"SPARK_LOG_LEVEL": "error", "SPARK_LOG_TRACE": "none"}
)
THEME = Theme(
    {
        "people.command": "bold cyan",
        "people.error": "bold red",
        "people.warning": "yellow",
        "people.right": "green",
        "people.number": "cyan",
    }
)


class ForPeople(RegexHighlighter):
    """What to see first in a plan or a table: what is wrong, and what to run."""

    base_style = "people."
    highlights: ClassVar[list[str]] = [
        r"(?<![\w.:-])(?P<number>\d[\d,]*(\.\d+)?)(?![\w:-])",
        r"\b(?P<error>error|not right|refused)\b",
        r"\b(?P<warning>warning|late)\b",
        r"\b(?<!not )(?P<right>right|no findings)\b",
        r"(?P<command>`[^`]+`)",
    ]


def run_job(
    job: str, args: Sequence[str], stream: Stream | None = None, stdout: TextIO | None = None
) -> int:
    """Run a job to its end; its exit code. What it says goes to `stdout`, if not to ours.

    Raises SettingsError, before a JVM starts, when SPARK_MASTER is no master or does not answer.
    """
    master = default_master()
    check_reachable(master)
    command = submit_command(job, args, stream, master)
    environment = QUIET | os.environ | job_environment(master)
    return subprocess.run(command, env=environment, stdout=stdout, check=False).returncode


def absolute_lake(lake: str) -> str:
    """`lake` whatever the working directory: jobs and Airflow have others."""
    return lake if "://" in lake else str(Path(lake).expanduser().absolute())


def say(line: str) -> None:
    """A line for people, at once even when the output is a pipe; with colours on a terminal."""
    if sys.stdout.isatty():
        console = Console(theme=THEME, highlighter=ForPeople(), markup=False, emoji=False)
        console.print(line, soft_wrap=True)
        return
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
