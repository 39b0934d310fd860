"""Commits by delta-rs that are made once: a repeated batch finds its own in the table's log.

Delta keeps the last number of each application in a table's log and its checkpoints. So the name
of an application must belong to one sequence of numbers: under the name of another, batch 0
would be taken for written.
"""

import time
from collections.abc import Callable

from deltalake import CommitProperties, DeltaTable, Transaction

from include.lake.delta_log import delta_table
from include.lake.ops import despite_others


def transaction(app_id: str, version: int) -> Transaction:
    """That `app_id` has written `version`, and when.

    Without the time, which delta-rs leaves out, Spark takes the record for an expired one in a
    table that has `delta.setTransactionRetentionDuration`, and writes the batch again.
    """
    return Transaction(app_id, version, last_updated=time.time_ns() // 1_000_000)


def write_once(
    path: str,
    app_id: str,
    batch_id: int,
    write: Callable[[DeltaTable, CommitProperties], None],
    metadata: dict[str, str] | None = None,
) -> None:
    """Make one commit to the table at `path`, unless `app_id` has written this batch before."""
    commit = CommitProperties(
        custom_metadata=metadata, app_transactions=[transaction(app_id, batch_id)]
    )

    def write_unless_written() -> None:
        table = delta_table(path)
        if not is_written(table, app_id, batch_id):
            write(table, commit)

    despite_others(write_unless_written)


def is_written(table: DeltaTable, app_id: str, batch_id: int) -> bool:
    """Whether `app_id` has written this batch, or a later one."""
    written = table.transaction_version(app_id)
    return written is not None and written >= batch_id
