"""Dead letters of a stream, what its function failed for: their table, and how a killed job's rows in it are
put back."""

from include.lake.columns import Column
from include.lake.delta_log import unbroken
from include.lake.paths import Lake
from include.lake.table import Record, Table

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
# In a commit's record: a number, more than in any earlier one, and of a batch what has written it.
NUMBER, APP, BATCH = "number", "app", "batch"


def dead_letters_number(lake: Lake, stream: str) -> int:
    """What the newest of our commits to the table of a stream is numbered by; 0 where there is none.

    LakeError when others have changed it since, or its log cannot be read.
    """
    return int(dead_letters_record(lake, stream).get(NUMBER, 0))


def dead_letters_record(lake: Lake, stream: str) -> Record:
    """The newest record of the table of a stream; empty where there is none. LakeError as above."""
    path = lake.dead_letters(stream)
    told = Table.read(lake, path).record() if lake.is_delta_table(path) else None
    return told or {}


def put_back_dead_letters(lake: Lake, stream: str, number: int) -> None:
    """Undo what a rebuild or restatement has put in the place of dead letters, and was killed before it
    committed the table: `number` is of the commit that the table's record counts on."""
    told = dead_letters_record(lake, stream)
    if told.get(NUMBER, 0) <= number or APP in told:
        return
    with unbroken(lake.dead_letters(stream)):
        table = Table.open(lake, lake.dead_letters(stream))
        table.restore(lambda record: int(record[NUMBER]) <= number, {NUMBER: number})
