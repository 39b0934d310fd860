"""`./stateful` and its jobs in this process: a row of the matrix costs no start of a JVM.

The command line, the jobs' own `main`, their exit codes and what they say are the real ones. Only
what starts a process does the same here, and `engine` stands where a job makes Spark's.
"""

import importlib
import io
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import pytest

from include import job as jobs
from include import run_local
from include.cli import commands
from include.cli.__main__ import main as stateful
from include.maintain import table_maintenance

COMMAND = re.compile(r"`\./stateful ([^`]+)`")
JOBS = ("run_stream", "rebuild_stream", "restate_interval", "write_savepoint", "compact_state")


class Report(NamedTuple):
    """The exit code of a command, and what it said."""

    code: int
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands that mend it, by the line of the error or the findings behind it, each once."""
        found = COMMAND.findall(self.error) or COMMAND.findall(self.last_words)
        return list(dict.fromkeys(found))

    @property
    def error(self) -> str:
        """The line that says why it failed; empty if none does."""
        lines = [line.strip() for line in self.text.splitlines()]
        return next((line for line in lines if line.startswith("error: ")), "")

    @property
    def last_words(self) -> str:
        """From the error on: after a job's line comes what `./stateful stream` makes of it."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        first = next((n for n, line in enumerate(lines) if line.strip().startswith("error: ")), 0)
        return "\n".join(lines[first:] if self.code else lines)


class CommandLine:
    """Runs `./stateful` for a lake; `engine()` is asked anew for each job, as a process would."""

    def __init__(
        self,
        engine: Callable[[], Any],
        session: Callable[[], Any] = lambda: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._session = session
        self._at_end = at_end  # of each job

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for place in (run_local, commands, table_maintenance):
                patch.setattr(place, "run_job", self.run_job)
            patch.setattr(run_local, "subprocess", self)
            patch.setattr(logging, "basicConfig", lambda **_: None)
            for name in ("job", *JOBS, "maintain_table"):
                module = importlib.import_module(f"spark_jobs.{name}")
                if hasattr(module, "spark_session"):
                    patch.setattr(module, "spark_session", lambda *_: self._session())
                if hasattr(module, "SparkEngine"):
                    patch.setattr(module, "SparkEngine", lambda _: self._engine())
            yield

    def stateful(self, lake: str, command: str) -> Report:
        """The command as a person types it, without `./stateful`."""
        return self._told(lambda: self._main(lake, shlex.split(command)))

    def _main(self, lake: str, words: list[str]) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(os.environ, "LAKE", lake)
            return stateful(words)

    def _told(self, run: Callable[[], int]) -> Report:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            try:
                code = run()
            except SystemExit as ended:
                code = int(ended.code or 0)
        return Report(code, said.getvalue())

    def run_job(self, job: str, args: Sequence[str], *_: Any) -> int:
        return self._ended(f"spark_jobs.{job}", args)

    def run(self, command: Sequence[str], **_: Any) -> Any:
        """In the place of `subprocess.run`, for what needs no JVM."""
        _, flag, module, *args = command
        assert flag == "-m"
        return _Done(self._ended(module, args))

    def _ended(self, module: str, args: Sequence[str]) -> int:
        main = importlib.import_module(module).main
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [module, *args])
            try:
                jobs.exit_with_main(main)
            except SystemExit as ended:
                return int(ended.code or 0)
            finally:
                self._at_end()
        return 0


class _Done(NamedTuple):
    returncode: int
