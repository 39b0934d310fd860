"""Commits by delta-rs that are made once: a repeated batch finds its own in the table's log.

Delta keeps the last number of each application in a table's log and its checkpoints. So the name
of an application must belong to one sequence of numbers: under the name of another, batch 0
would be taken for written.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction

from include.lake.delta_log import delta_table, find_actions, rows_of
from include.lake.ops import despite_others
from include.lake.paths import Lake


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


def rows_committed(lake: Lake, path: str, app_id: str, batch_id: int) -> int | None:
    """The rows of the batch's one commit to the table at `path`, by the table's own log.

    0 without such a commit; None where it was cleaned up, and the log tells of the transaction
    alone. A batch that is repeated finds the commit of its first time.
    """
    log = delta_table(path)
    if log.transaction_version(app_id) != batch_id:
        return 0
    found = find_commit(lake, path, log.version(), app_id=app_id, batch_id=batch_id)
    if found is None:
        return None
    return sum(rows_of(path, action["add"]) for action in found if "add" in action)


def find_commit(
    lake: Lake, path: str, newest: int, app_id: str, batch_id: int
) -> Sequence[Mapping[str, Any]] | None:
    """The actions of the commit, `newest` or before it, by which `app_id` wrote this batch; None: the log has it not."""
    ours = {"appId": app_id, "version": batch_id}
    for version in range(newest, -1, -1):
        actions = find_actions(lake, path, version)
        if actions is None:
            return None
        if any(ours.items() <= action.get("txn", {}).items() for action in actions):
            return actions
    return None
