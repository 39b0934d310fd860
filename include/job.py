"""The parts that all jobs share, with a JVM or without: arguments, the row in `ops/runs`, memory, exit codes."""

import logging
import os
import re
import sys
import threading
import time
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pyarrow as pa
from deltalake.exceptions import DeltaError

from include.lake.delta_log import message_of, panics_as_errors
from include.lake.errors import StatefulError, last_line
from include.lake.lease import hold_lease
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.settings import Stream
from include.spark.submit import LOG_FILE, PROGRESS
from include.streams import FOLDER
from include.text_table import printable

INTERVAL_S = 1.0
_asked = count()


def jvm_start_seconds() -> float | None:
    """Return the time since the start of this process's JVM; None without one, and at the next calls."""
    parent, is_first = psutil.Process().parent(), not next(_asked)
    if parent is None or not is_first or not is_jvm(parent):
        return None
    return time.time() - float(parent.create_time())


def resident_bytes() -> dict[str, int]:
    """Return the memory of the JVM, and of this process with its workers; what forks share counts for each."""
    this = psutil.Process()
    # spark-submit starts the JVM, which starts this process; a shell or a test the JVM itself.
    parent = this.parent()
    root = parent if parent is not None and is_jvm(parent) else this
    held = {"jvm_rss_bytes": 0, "python_rss_bytes": 0}
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed
            held["jvm_rss_bytes" if is_jvm(process) else "python_rss_bytes"] += (
                process.memory_info().rss
            )
    return held


def is_jvm(process: psutil.Process) -> bool:
    return bool(process.name() == "java")


log = logging.getLogger("job")
RunRecord = dict[str, Any]
# For a stream's lease: its live run, or a restatement of another interval, comes to an end.
PATIENCE = timedelta(minutes=10)
# The last line of a Python traceback: the error's name and message.
CAUSE = re.compile(r"[\w.]+(Error|Exception)(: \S|$)")
OF_WORKER = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)+[\w.]+.*$", re.MULTILINE)
# The lines of users' files in a traceback; and the module before the name of one of our errors.
OF_USER = re.compile(rf'^  File "[^"]*{re.escape(FOLDER)}/.*\n(?:    .*\n)+', re.MULTILINE)
OF_OURS = re.compile(r"(include|spark_jobs)(\.\w+)+\.(?=\w+: )")
TOO_BUSY = "Python worker failed to connect back"
# Py4J's first line of any error in the JVM; the error itself comes next.
OF_PY4J = "An error occurred while calling "
# Errors of reading and writing without a JVM: delta-rs has the cause, and the file, below the first line.
OF_FILES = (DeltaError, OSError, pa.ArrowException)


def job_parser(doc: str | None, subject: str) -> ArgumentParser:
    """Return the parser for a job on one `subject`, a source or a stream; it exits with 2 when the line is wrong."""
    parser = ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(f"--{subject}", required=True, help=f"a {subject} in include/streams")
    parser.add_argument("--lake", required=True, help="the lake's folder or URI")
    parser.add_argument("--dag-run-id", help="the Airflow Dag run that started this, for ops/runs")
    return parser


@contextmanager
def nothing_running(
    lake: Lake, sources: Iterable[str], streams: Iterable[Stream]
) -> Iterator[None]:
    """Hold the leases of sources and streams while the body runs; jobs that run now come to their end first."""
    with ExitStack() as leases:
        for stream in sorted(stream.name for stream in streams):
            leases.enter_context(hold_lease(lake, f"stream-{stream}", PATIENCE))
        # Last: a compaction takes it while it holds its stream's.
        for source in sorted(sources):
            leases.enter_context(hold_lease(lake, f"ingest-{source}", PATIENCE))
        yield


@contextmanager
def recorded_run(lake: Lake, job: str, subject: str, dag_run_id: str | None) -> Iterator[RunRecord]:
    """Write a row of `ops/runs` for the body, which fills in its counts."""
    record: RunRecord = {
        "run_id": uuid4().hex,
        "job": job,
        "subject": subject,
        "dag_run_id": dag_run_id,
        "started_at": datetime.now(UTC),
        "jvm_start_seconds": jvm_start_seconds(),
    }
    try:
        with _recorded_memory(record), panics_as_errors():
            yield record
    except Exception as error:
        record |= {"outcome": "failed", "error": cause_of(error), "ended_at": datetime.now(UTC)}
        append_ops(lake, "runs", [record])
        raise
    record |= {"outcome": "succeeded", "ended_at": datetime.now(UTC)}
    append_ops(lake, "runs", [record])
    counted = ("rows_", "files_", "batches", "until")
    counts = [
        f"{name}={value}"
        for name, value in record.items()
        if name.startswith(counted) and value is not None
    ]
    log.info("%s %s: %s", job, subject, " ".join(counts))


def tell_progress(text: str) -> None:
    """Report progress if the job was started at a terminal."""
    if PROGRESS in os.environ:
        sys.stderr.write(f"{PROGRESS} {text}\n")
        sys.stderr.flush()


@contextmanager
def _recorded_memory(record: RunRecord) -> Iterator[None]:
    """Record the peak memory while the body runs, also when it fails."""
    peak, ended = resident_bytes(), threading.Event()

    def sample() -> None:
        while not ended.wait(INTERVAL_S):
            peak.update({name: max(peak[name], held) for name, held in resident_bytes().items()})

    thread = threading.Thread(target=sample, daemon=True, name="memory")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        record |= peak


def cause_of(error: Exception) -> str:
    """Return the line that says what went wrong: of a traceback from a worker, the last such line."""
    if TOO_BUSY in str(error):
        return (
            f"{TOO_BUSY}: the machine was too busy to start it in time. Run it again, with fewer "
            "jobs at once"
        )
    if isinstance(error, OF_FILES):
        return message_of(error)
    lines = str(error).splitlines() or [type(error).__name__]
    if lines[0].startswith(OF_PY4J):
        lines = [line.removeprefix(": ") for line in lines[1:]] or lines
    cause = next((line for line in reversed(lines) if CAUSE.match(line)), lines[0])
    return OF_OURS.sub("", cause, count=1)


def _traceback(error: Exception) -> str:
    """Return the traceback; with SPARK_LOG_LEVEL=error, for Spark's errors, the lines of users' files or of a worker."""
    whole, of_workers = traceback.format_exc(), OF_WORKER.findall(str(error))
    if LOG_FILE not in os.environ or not (of_workers or "\tat " in whole):
        return whole
    of_users = "".join(OF_USER.findall(of_workers[0])) if of_workers else ""
    return of_users or (f"{of_workers[-1]}\n" if of_workers else "")


def exit_with_main(main: Callable[[], None]) -> None:
    """Run an entry point: exit 0, or an error's own code or 1 with its cause as the last line."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    log.setLevel(logging.INFO)
    # Py4J logs the error of a batch, which Spark raises again.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        with panics_as_errors():
            main()
    except StatefulError as error:
        sys.stderr.write(printable(f"{last_line(error)}\n"))
        sys.exit(error.exit_code)
    except Exception as error:
        line = f"error: {cause_of(error)}"
        if log_file := os.environ.get(LOG_FILE):
            with Path(log_file).open("a") as whole:
                whole.write(traceback.format_exc())
            line += f" (its log is {log_file})"
        sys.stderr.write(printable(f"{_traceback(error)}{line}\n"))
        raise SystemExit(1) from error
