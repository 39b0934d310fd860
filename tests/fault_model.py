"""The rows of docs/guarantees.md: what may happen to a lake, and what comes of it.

Whatever a test does to a lake names one of these. What is in none of them, or out of scope, has no test.
"""

from enum import Enum

SURVIVED, LOUD, OUT_OF_SCOPE = "survived", "loud", "out of scope"


class Fault(Enum):
    """One row: what happens, what comes of it, and the command that mends it, if there is one."""

    ANY_ORDER = "rows in any order, cut into any files, batches and runs", SURVIVED, ""
    ANY_BYTES = "any bytes that land", SURVIVED, ""
    KILLED = "a job killed at any write, a task that is repeated or runs twice", SURVIVED, ""
    ONE_TIME = "the whole lake put back from one time", SURVIVED, ""
    OPS = "all of `ops` lost or older, or a table of it damaged", SURVIVED, ""
    SAVEPOINTS = "savepoints lost", SURVIVED, ""
    BEHIND_LOG = (
        "bronze or quarantine older than the ingest log, the files that it names still there",
        SURVIVED,
        "",
    )
    MAINTENANCE = (
        "others' OPTIMIZE, VACUUM of 7 days or more, other table properties; logs cleaned up",
        SURVIVED,
        "",
    )
    LATE = "late rows", LOUD, "restate NAME FROM UNTIL"
    CHANGED = (
        "another function, state, setting, field or output column",
        LOUD,
        "rebuild NAME --apply",
    )
    NO_ROOM = "disk full or read-only, no more open files, a worker killed", LOUD, ""
    STREAM_OF_ONE_TIME = (
        "a stream's table, dead letters and checkpoint put back from one time, and the log of "
        "bronze cleaned up since",
        LOUD,
        "rebuild NAME --apply",
    )
    OTHER_TIMES = (
        "table, dead letters, checkpoint and bronze of different times, or one of them lost",
        LOUD,
        "rebuild NAME --full-refresh --apply",
    )
    UNREADABLE = (
        "a checkpoint, a log or a data file that cannot be read",
        LOUD,
        "rebuild NAME --apply",
    )
    INGESTED = (
        "bronze, quarantine or the ingest log lost, unreadable or of different times",
        LOUD,
        "ingest SOURCE --from-scratch --apply",
    )
    OTHERS = (
        "others' DELETE, UPDATE, append, RESTORE, or a column that they dropped",
        LOUD,
        "rebuild NAME --apply",
    )
    TWO_DRIVERS = "two drivers of one stream, or of one source", LOUD, ""
    CLOCK = "a clock that is or was wrong", LOUD, "set-watermark SOURCE --to INSTANT --apply"
    LOST_INPUT = (
        "offsets or versions that Kafka or a Delta table has lost",
        LOUD,
        "ingest SOURCE --accept-loss --apply",
    )
    VALID_JSON = "bytes of a log changed so that its JSON stays valid", OUT_OF_SCOPE, ""
    VALID_FILE = (
        "a data file exchanged for another valid one, or changed and still readable",
        OUT_OF_SCOPE,
        "",
    )
    SINGLE_TABLES = "single tables of `ops`, or savepoints, older than the rest", OUT_OF_SCOPE, ""
    HDFS = "two drivers on HDFS", OUT_OF_SCOPE, ""
    ERASED = "copies from before an erasure put back", OUT_OF_SCOPE, "erase NAME KEY --apply"
    NOT_DETERMINISTIC = "functions that are not deterministic", OUT_OF_SCOPE, ""
    MEMORY = "whose memory was short; a Parquet or Avro file made to fill it", OUT_OF_SCOPE, ""
    HALF_A_DISK = "a disk that lists a file of a log and does not give it", OUT_OF_SCOPE, ""

    def __init__(self, happens: str, outcome: str, command: str) -> None:
        self.happens, self.outcome, self.command = happens, outcome, command
