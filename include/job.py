"""What every job shares, with a JVM or without: its arguments, its row in `ops/runs`, its exit codes."""

import logging
import os
import re
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake.exceptions import DeltaError

from include.lake.delta_log import told_of
from include.lake.errors import StatefulError, last_line
from include.lake.open_delta import panics_as_errors
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.memory import MemorySampler, jvm_start_seconds
from include.text_table import printable

log = logging.getLogger("job")

RunRecord = dict[str, Any]
# For the lease of a stream: a live run, or another interval's, goes on. They end.
PATIENCE = timedelta(minutes=10)
# The last line of a Python traceback: the error's name and message.
CAUSE = re.compile(r"[\w.]+(Error|Exception)(: \S|$)")
OF_WORKER = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)+[\w.]+.*$", re.MULTILINE)
# In the environment, "error": whoever reads is at a terminal, and wants no traceback of Spark's.
LOG_LEVEL = "SPARK_LOG_LEVEL"
TOO_BUSY = "Python worker failed to connect back"
# What Py4J says first of any error of the JVM's; the error itself comes next.
OF_PY4J = "An error occurred while calling "
# Of reading and writing without a JVM: delta-rs puts the cause, and the file, below the first line.
OF_FILES = (DeltaError, OSError, pa.ArrowException)


def job_parser(doc: str | None, subject: str) -> ArgumentParser:
    """The command line of a job on one `subject`, a source or a stream; it exits with 2 when wrong."""
    parser = ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(f"--{subject}", required=True, help=f"a {subject} in include/streams")
    parser.add_argument("--lake", required=True, help="the lake's folder or URI")
    parser.add_argument("--dag-run-id", help="the Airflow Dag run that started this, for ops/runs")
    return parser


@contextmanager
def recorded_run(lake: Lake, job: str, subject: str, dag_run_id: str | None) -> Iterator[RunRecord]:
    """A row of `ops/runs` for what happens inside; the body fills in its counts.

    A failure is recorded with its cause in one line, and raised again.
    """
    record: RunRecord = {
        "run_id": uuid4().hex,
        "job": job,
        "subject": subject,
        "dag_run_id": dag_run_id,
        "started_at": datetime.now(UTC),
        "jvm_start_seconds": jvm_start_seconds(),
    }
    try:
        with recorded_memory(record), panics_as_errors():
            yield record
    except Exception as error:
        record |= {"outcome": "failed", "error": _cause(error), "ended_at": datetime.now(UTC)}
        append_ops(lake, "runs", [record])
        raise
    record |= {"outcome": "succeeded", "ended_at": datetime.now(UTC)}
    append_ops(lake, "runs", [record])
    log.info("%s", printable(_summary(record)))


@contextmanager
def recorded_memory(record: RunRecord) -> Iterator[None]:
    """The peak of memory while the body runs into `record`, also when it fails."""
    sampler = MemorySampler()
    try:
        with sampler:
            yield
    finally:
        record |= {"jvm_rss_bytes": sampler.peak.jvm, "python_rss_bytes": sampler.peak.python}


def _cause(error: Exception) -> str:
    """The line that says what went wrong: of a traceback from a worker, the last such line."""
    if TOO_BUSY in str(error):
        return (
            f"{TOO_BUSY}: the machine was too busy to start it in time. Run it again, with fewer "
            "jobs at once"
        )
    if isinstance(error, OF_FILES):
        return told_of(error)
    lines = str(error).splitlines() or [type(error).__name__]
    if lines[0].startswith(OF_PY4J):
        lines = [line.removeprefix(": ") for line in lines[1:]] or lines
    return next((line for line in reversed(lines) if CAUSE.match(line)), lines[0])


def _traceback(error: Exception) -> str:
    """All of it; of what Spark raises, for a terminal, what is of a Python worker."""
    whole = traceback.format_exc()
    if os.environ.get(LOG_LEVEL) != "error" or "\tat " not in whole:
        return whole
    of_workers = OF_WORKER.findall(str(error))
    return f"{of_workers[-1]}\n" if of_workers else ""


def _summary(record: RunRecord) -> str:
    counts = [
        f"{name}={value}"
        for name, value in record.items()
        if name.startswith(("rows_", "files_", "batches", "until")) and value is not None
    ]
    return f"{record['job']} {record['subject']}: {' '.join(counts)}"


def exit_with_main(main: Callable[[], None]) -> None:
    """Run an entry point: exit 0 when it returns; with one line, and the error's own exit code, for a
    StatefulError; else 1, with the cause as the last line.
    """
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    log.setLevel(logging.INFO)
    try:
        with panics_as_errors():
            main()
    except StatefulError as error:
        sys.stderr.write(printable(f"{last_line(error)}\n"))
        sys.exit(error.exit_code)
    except Exception as error:
        sys.stderr.write(printable(f"{_traceback(error)}error: {_cause(error)}\n"))
        raise SystemExit(1) from error
