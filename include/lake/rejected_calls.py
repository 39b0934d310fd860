"""`rejected/<stream>`, made with its documented columns, and what some of its rows come to."""

from collections import Counter
from typing import NamedTuple

from include.fold.product_table import PROPERTIES
from include.lake.columns import Column, create_if_absent
from include.lake.paths import Lake

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


class Summary(NamedTuple):
    """What some rejected calls come to."""

    events: int
    timeouts: int
    first_us: int
    last_us: int
    by_key: Counter[str]  # of the MOST_KEYS keys with the most of them


def ensure_table(lake: Lake, stream: str) -> None:
    """Make the table of a stream, where it is not there yet: it is made with its first row."""
    comment = f"Events and timeouts that the state function of {stream} failed for"
    create_if_absent(lake.rejected(stream), COLUMNS, comment, PROPERTIES, [AT_DATE])
