"""`./stateful` and its jobs in processes of their own, with the streams of the matrix.

    LAKE=/dev/shm/lake python -m tests.faults.own_process stateful stream user_counts

Those streams are no files, so each process that is started has to be told of them: the jobs with a
JVM (`job`), and what needs none (`module`), start here, too. PATIENCE=none in the environment: who
finds another one at work waits no time for its end.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from include import run_local
from include.cli.__main__ import main as stateful
from include.job import exit_with_main
from include.settings import PROJECT, Stream
from include.spark import submit
from include.spark.submit import job_path, submit_command
from tests.faults.lakes import registered

HERE = Path(__file__)
PATIENCE = "PATIENCE"


def start(
    lake: str,
    command: str,
    said: Path,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = ("tests.faults.own_process", "stateful"),
) -> subprocess.Popen[bytes]:
    """`command` as a person types it, as the head of a process group of its own."""
    with said.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *program, *command.split()],
            stdout=file,
            stderr=file,
            cwd=PROJECT,
            env={**os.environ, "LAKE": lake, **(environment or {})},
            start_new_session=True,
        )


def main() -> None:
    kind, *words = sys.argv[1:]
    with registered(), pytest.MonkeyPatch.context() as patch:
        if kind == "stateful":
            patch.setattr(submit, "submit_command", _submit_command)
            patch.setattr(run_local, "subprocess", _Here)
            sys.exit(stateful(words))
        if os.environ.get(PATIENCE) == "none":
            _lose_patience(patch)
        patch.setattr(sys, "argv", words)
        module = importlib.import_module(words[0])
        _exit_of(kind)(module.main)


def _lose_patience(patch: pytest.MonkeyPatch) -> None:
    from tests.faults.disturb import PATIENCES

    for patience in PATIENCES:
        patch.setattr(patience, timedelta(0))


def _exit_of(kind: str) -> Callable[[Callable[[], None]], None]:
    """The end of such a process; only one with a JVM takes the second of importing Spark."""
    if kind != "job":
        return exit_with_main
    from spark_jobs.job import exit_with_main as exit_with_spark

    return exit_with_spark


def _submit_command(
    job: str, args: Sequence[str], stream: Stream | None = None, master: str | None = None
) -> list[str]:
    """The real command, with this file in the place of the job's."""
    command = submit_command(job, args, stream, master)
    at = command.index(str(job_path(job)))
    return [*command[:at], str(HERE), "job", f"spark_jobs.{job}", *args]


class _Here:
    """In the place of `subprocess`, for what needs no JVM."""

    @staticmethod
    def run(command: Sequence[str], **named: Any) -> Any:
        python, flag, module, *args = command
        here = [python, flag, "tests.faults.own_process", "module", module, *args]
        return subprocess.run(here, **named)


if __name__ == "__main__":
    main()
