"""The demo's debug log (include/log4j2-internals.properties), and what a part of it shows."""

import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from spark_jobs.internals.text import UUID, WIDTH, with_instants

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN")
PARTITION = r"StateStoreId\[ operatorId=0, partitionId=(\d+), storeName=default \]"
STORE = rf"StateStoreProviderId\[ storeId={PARTITION}, queryRunId=\S+ \]"
# In messages: ids, times and long lists.
NOISE = (
    (STORE, r"[partition \1]"),
    (PARTITION, r"[partition \1]"),
    (r"RocksDBConf\(.*", "RocksDBConf(...)"),
    (r", stats = .*", ""),
    (r",HashMap\(.*", ", ...)"),
    (r"total = .* - Batches", "... - Batches"),
    (r"task (\d+)\.0 in stage \S+ \(TID \d+\)", r"task \1"),
    (UUID, "<id>"),
)
# Steps inside steps that are shown.
MINOR = re.compile(
    "Transitioned|file mapping|native logging|metadata|Trying to add|set of files|fetchFiles|took"
    "|Estimated|deleting|Cleaned|change log reader|Retrieving data|RocksDB files|checkpoint files|Copied /"
    "|Done from|completion listener|closing the"
)


class LogLine(NamedTuple):
    """A line of the log, as its layout has it."""

    level: str
    logger: str
    thread: str
    message: str


def read_log(path: str) -> list[LogLine]:
    """Each message's first line: what follows it are plans and file lists."""
    parts = (line.split("\t", 3) for line in Path(path).read_text().splitlines())
    return [LogLine(*part) for part in parts if len(part) == 4 and part[0] in LEVELS]


def batch_lines(log: Sequence[LogLine], query: str, batch: int) -> list[LogLine]:
    """What was logged from a batch's start to the start of the next one."""
    of_query = dropwhile(_before(rf"Starting {query} "), log)
    of_batch = dropwhile(_before(rf"Running batch {batch}$"), of_query)
    return list(takewhile(_before(rf"Running batch {batch + 1}$|Starting \w+ \["), of_batch))


def _before(pattern: str) -> Callable[[LogLine], bool]:
    return lambda line: re.match(pattern, line.message) is None


def of_partition(lines: Sequence[LogLine], partition: int) -> list[LogLine]:
    """The lines of the task that has this state partition, and of no task."""
    mine = f"task {partition}.0 in"
    return [line for line in lines if mine in line.thread or "task" not in line.thread]


def of_loggers(lines: Sequence[LogLine], *names: str) -> list[LogLine]:
    """The lines of loggers whose class name begins with one of these."""
    return [line for line in lines if line.logger.rpartition(".")[2].startswith(names)]


def readable_lines(lines: Sequence[LogLine], folder: str) -> str:
    """Level, logger and message, without ids and minor steps; of long ones the beginning."""
    shown = (_readable(line, folder) for line in lines if not MINOR.search(line.message))
    return "".join(f"{text}\n" for text in shown)


def _readable(line: LogLine, folder: str) -> str:
    text = f"{line.level:5} {line.logger.rpartition('.')[2]}: {line.message}"
    text = text.replace(f"file:{folder}", "<lake>")
    for pattern, shorter in NOISE:
        text = re.sub(pattern, shorter, text)
    return textwrap.fill(
        with_instants(text),
        WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
        max_lines=2,
        placeholder=" ...",
    )
