"""`rejected/<stream>`, made with its documented columns, and what some of its rows come to."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from include.fold.product_table import PROPERTIES
from include.lake.columns import Column, create_if_absent
from include.lake.generations import REJECTED, app_prefix
from include.lake.paths import Lake
from include.lake.table_changes import Actions, IsOurs

AT, AT_DATE = "at", "at_date"
COLUMNS = (
    Column("key", "string", "Key, with at and number: the stream's key, as text"),
    Column(AT, "timestamp", "When the event (or timeout) was, on the stream's clock, UTC"),
    Column("number", "int", "Which of those of the key at that instant, from 0"),
    Column("cause", "string", "event, or timeout: what the function was called for"),
    Column("event", "string", "The event as the function got it, as JSON; cut at 16 KiB"),
    Column("error", "string", "The class of the exception"),
    Column("message", "string", "Its text; cut at 1 KiB"),
    Column(
        "traceback",
        "string",
        "The calls from the state function on, cut at 4 KiB; null when the function had returned, "
        "and what it returned was wrong",
    ),
    Column(AT_DATE, "date", "Partition: the date of at"),
)
MOST_KEYS = 1_000  # that are remembered of one batch
# What a commit says of itself that puts the rows of a recompute or a reseed in the place of others.
REPLACED = json.dumps({"rejected": "replaced"})


class Summary(NamedTuple):
    """What some rejected calls come to."""

    events: int
    timeouts: int
    first_us: int
    last_us: int
    by_key: Counter[str]  # of the MOST_KEYS keys with the most of them


def ours(stream: str) -> IsOurs:
    """The commits of the stream's batches, recomputes and reseeds."""

    def is_ours(commit_info: Mapping[str, Any], actions: Actions) -> bool:
        apps = (str(action.get("txn", {}).get("appId", "")) for action in actions)
        is_batch = any(
            app.startswith(app_prefix(stream)) and app.endswith(f"/{REJECTED}") for app in apps
        )
        return is_batch or commit_info.get("userMetadata") == REPLACED

    return is_ours


def ensure_table(lake: Lake, stream: str) -> None:
    """Make the table of a stream, where it is not there yet: it is made with its first row."""
    comment = f"Events and timeouts that the state function of {stream} failed for"
    create_if_absent(lake.rejected(stream), COLUMNS, comment, PROPERTIES, [AT_DATE])
