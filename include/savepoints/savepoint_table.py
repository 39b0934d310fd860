"""`savepoints/<stream>`, made with its documented columns; whoever writes them."""

from collections.abc import Iterable

from include.fold.deduplicate import SEEN
from include.fold.definition import KeyedFold
from include.fold.timers import TIMERS
from include.lake.columns import Column, columns_of, create_if_absent, documented, found_columns
from include.lake.delta_log import open_table
from include.lake.paths import Lake

# What is stored beside a state, where the stream's fold has it.
BESIDE = {
    SEEN: "Values by which events are known as duplicates, and when they were first folded",
    TIMERS: "When each of its timers fires, in microseconds since 1970; null if it is not set",
}
# Readers without a JVM must be able to read the table.
PROPERTIES = {"delta.enableDeletionVectors": "false"}


def savepoint_table(lake: Lake, fold: KeyedFold) -> str:
    """The table for states of this kind, below the lake; it is made where it is not there yet.

    One of another kind, from before a migration, is left as it is, and the next number taken.
    """
    columns = savepoint_columns(fold)
    number = 1
    while True:
        path = f"savepoints/{fold.stream}" + (f"-{number}" if number > 1 else "")
        if not lake.is_delta_table(f"{lake.root}/{path}"):
            comment = f"{fold.stream}: its state as of past instants"
            create_if_absent(f"{lake.root}/{path}", columns, comment, PROPERTIES, ["savepoint_id"])
            return path
        if found_columns(open_table(f"{lake.root}/{path}")) == columns_of(documented(columns)):
            return path
        number += 1


def savepoint_columns(fold: KeyedFold) -> list[Column]:
    """The documented columns of a savepoint's table."""
    fields = ",".join(f"{column.name}:{column.kind}" for column in fold.state_columns)
    return [
        Column("savepoint_id", "string", "The savepoint; ops/savepoints has its manifest"),
        Column("until", "timestamp", "The state is that of all events before this, UTC"),
        Column("key", fold.keys.kind, "Key, with savepoint_id: whose state it is"),
        Column("state", f"struct<{fields}>", "The state; null for a key with only a timeout"),
        Column("changed_at", "timestamp", "When it last changed, on the stream's clock, UTC"),
        Column("timeout_at", "timestamp", "When it times out; null for never"),
        *(Column(column.name, column.kind, BESIDE[column.name]) for column in fold.beside),
    ]


def beside_in(columns: Iterable[str]) -> list[str]:
    """Which of the columns are BESIDE's."""
    return [name for name in columns if name in BESIDE]
