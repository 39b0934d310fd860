"""Spark's appends to bronze, each of which must know the commit before it.

Delta gives an append the next number when its own is taken, as appends change nothing that other
appends have read. Ours have: the clock. Without retries of its own Delta fails instead, and the
clock is read again. What is left is a commit between the reading of the clock and the beginning of
Delta's transaction; `check_clock_order` tells of it afterwards.
"""

import logging
from collections.abc import Callable

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

MAX_COMMIT_ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"
VERSION_TAKEN = "DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
ATTEMPTS = 10

log = logging.getLogger("job.bronze")


def append_in_order(session: SparkSession, append: Callable[[], None]) -> None:
    """Call `append`, which reads the clock and commits by Spark; again if others were faster.

    Within `foreachBatch` give the batch's own session.
    """
    before = session.conf.get(MAX_COMMIT_ATTEMPTS, None)
    session.conf.set(MAX_COMMIT_ATTEMPTS, "0")
    try:
        for _ in range(ATTEMPTS - 1):
            try:
                return append()
            except Py4JJavaError as error:
                if VERSION_TAKEN not in str(error):
                    raise
                log.info("another job has committed to bronze meanwhile: its clock is read again")
        append()
    finally:
        if before is None:
            session.conf.unset(MAX_COMMIT_ATTEMPTS)
        else:
            session.conf.set(MAX_COMMIT_ATTEMPTS, before)
