"""The dead letters of a stream: their table, and the undoing of what a killed job has written to it."""

from typing import Any

from include.lake.columns import Column
from include.lake.delta_log import commit_hash, unbroken
from include.lake.paths import Lake
from include.lake.table import Table

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
        "The calls within it, cut at 4 KiB; null if what it returned is wrong",
    ),
    Column(AT_DATE, "date", "Partition: the date of at"),
)
NUMBER = "number"  # in a commit's record: more than in any earlier one


def dead_letters_number(lake: Lake, stream: str) -> int:
    """Return the number of our newest commit to a stream's dead letters; 0 where there is none."""
    path = lake.dead_letters(stream)
    record = Table.read(lake, path).record() if lake.is_delta_table(path) else None
    return 0 if record is None else int(record[NUMBER])


def dead_letters_now(lake: Lake, stream: str) -> dict[str, Any]:
    """Return the fields of a record that say which dead letters go with the table's rows."""
    number, path = dead_letters_number(lake, stream), lake.dead_letters(stream)
    commit = commit_hash(lake, path, number) if number else None
    return {"dead_letters": number, "dead_letters_commit": commit}


def has_dead_letters_of(lake: Lake, stream: str, number: int, commit: str | None) -> bool:
    """True if a stream's dead letters have the commit that a record names, as far as their log goes back."""
    if dead_letters_number(lake, stream) < number:
        return False
    known = commit_hash(lake, lake.dead_letters(stream), number) if number else None
    return known in (None, commit)


def put_back_dead_letters(lake: Lake, stream: str, number: int) -> None:
    """Undo the dead letters of a job that was killed before it committed the table's rows: go back to the
    commit `number`, which the table's record names."""
    if dead_letters_number(lake, stream) <= number:
        return
    with unbroken(lake.dead_letters(stream)):
        table = Table.open(lake, lake.dead_letters(stream))
        table.restore(lambda record: int(record[NUMBER]) <= number, {NUMBER: number})
