"""The record of a batch in a table's log, as both Spark and delta-rs understand it."""

import time

from deltalake import Transaction


def transaction(app_id: str, version: int) -> Transaction:
    """That `app_id` has written `version`, and when.

    Without the time, which delta-rs leaves out, Spark takes the record for an expired one in a
    table that has `delta.setTransactionRetentionDuration`, and writes the batch again.
    """
    return Transaction(app_id, version, last_updated=time.time_ns() // 1_000_000)
