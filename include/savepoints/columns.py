"""The documented columns of `savepoints/<stream>`, whoever writes them."""

from include.fold.definition import KeyedFold
from include.lake.columns import Column


def savepoint_columns(fold: KeyedFold) -> list[Column]:
    """The documented columns of a savepoint's table."""
    fields = ",".join(f"{column.name}:{column.kind}" for column in fold.state_columns)
    return [
        Column("savepoint_id", "string", "The savepoint; ops/savepoints has its manifest"),
        Column("until", "timestamp", "The state is that of all events before this, UTC"),
        Column("key", fold.key_column.kind, "Key, with savepoint_id: whose state it is"),
        Column("state", f"struct<{fields}>", "The state; null for a key with only a timeout"),
        Column("changed_at", "timestamp", "When it last changed, on the stream's clock, UTC"),
        Column("timeout_at", "timestamp", "When it times out; null for never"),
    ]
