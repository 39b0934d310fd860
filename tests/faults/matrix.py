"""The matrix: what of a lake is harmed, how, and what is done then. Data; `trial.py` tries a row."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random

from tests.fault_model import Fault
from tests.faults.lakes import STREAMS

Harm = Callable[[Path, Path], None]


def deleted(path: Path, older: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def emptied(path: Path, older: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path, older: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path: Path, older: Path) -> None:
    """Flip all bits of the middle half."""
    content = path.read_bytes()
    quarter = len(content) // 4
    middle = bytes(byte ^ 0xFF for byte in content[quarter:-quarter])
    path.write_bytes(content[:quarter] + middle + content[-quarter:])


def one_bit_flipped(path: Path, older: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def restored_older(path: Path, older: Path) -> None:
    """Put back what was there two runs before; delete a file that was not there yet."""
    if path.is_dir():
        shutil.rmtree(path)
        if older.is_dir():
            shutil.copytree(older, path)
    elif older.exists():
        shutil.copyfile(older, path)
    else:
        path.unlink()


OF_FILES: Mapping[str, Harm] = {
    "deleted": deleted,
    "emptied": emptied,
    "truncated": truncated,
    "flipped": flipped,
    "one bit flipped": one_bit_flipped,
    "older": restored_older,
}
OF_FOLDERS: Mapping[str, Harm] = {"deleted": deleted, "older": restored_older}


def harm(name: str, path: Path, older: Path) -> None:
    """Do it. Checksums of Hadoop's are beside a file, and lost with it where a disk is."""
    OF_FILES[name](path, older)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


# Of files the newest of a pattern, of folders all of it; below the lake.
LOG = "_delta_log/[0-9]*[0-9].json"
CHECKPOINT = "checkpoints/{stream}/1"
CHECKPOINT_FILES = (
    f"{CHECKPOINT}/metadata",
    f"{CHECKPOINT}/offsets/[0-9]*",
    f"{CHECKPOINT}/commits/[0-9]*",
    f"{CHECKPOINT}/state/0/_metadata/v2/[0-9]*",
)
# What only Spark's own engine writes and reads as it is.
STATE_FILES = (f"{CHECKPOINT}/state/0/**/*.changelog", f"{CHECKPOINT}/state/0/**/*.zip")
INGESTED = ("bronze/{source}", "quarantine/{source}", "ingest_log/{source}")
TABLES = (*INGESTED, "tables/{stream}")
# Of a table with a checkpoint of its log.
JSON = (LOG, "_delta_log/_last_checkpoint")
DATA = "**/part-*.parquet"
OF_TABLE = (*JSON, DATA, "_delta_log/*.checkpoint.parquet")
# A log that has lost its newest commit is an older one, and such an `ops` table is out of scope.
OPS = ("ops/batches/",)
OF_OPS = (LOG, "**/*.parquet")
# With a bit flipped these may be as valid as before.
TEXTS = (*CHECKPOINT_FILES, *(f"{table}/{part}" for table in TABLES for part in JSON))
# Folders that are harmed together.
AND = " + "
OF_STREAM = ("tables/{stream}", "checkpoints/{stream}")
OF_LAKE = ("bronze", "quarantine", "ingest_log", "savepoints", "tables", "checkpoints", "ops")
WHOLE = {
    AND.join(OF_STREAM): {"older": Fault.STREAM_OF_ONE_TIME},
    AND.join(OF_LAKE): {"older": Fault.ONE_TIME},
    "ops": {"deleted": Fault.OPS, "older": Fault.OPS},
    "savepoints": {"deleted": Fault.SAVEPOINTS},
    # As after a death behind the ingest log's commit: the rows are in files that no table has. A stream
    # that has read bronze's newer commits finds others with their numbers.
    "bronze/{source}/_delta_log": {"older": Fault.OTHER_TIMES},
    "quarantine/{source}/_delta_log": {"older": Fault.BEHIND_LOG},
    f"bronze/{{source}}/{LOG}{AND}bronze/{{source}}/{DATA}": {"deleted": Fault.INGESTED},
}
# The others ask for a day that is complete by then.
AFTER_WHOLE = ("batch", "no data", "rebuild", "compaction", "maintenance")

# What is done to a harmed lake. {day}: an interval that is complete.
OPERATIONS = {
    "batch": "stream {stream}",  # a file has landed
    "no data": "stream {stream}",
    "savepoint": "savepoint {stream}",
    "restate": "restate {stream} {day}",
    "rebuild": "rebuild {stream} --apply",
    "compaction": "maintain {stream} --compact",
    "maintenance": "maintain",
}
# Only Spark does these in earnest.
READ_BY_SPARK = ("checkpoints/", "bronze/", "tables/", "savepoints/")
ON_SPARK = {"maintenance"}


@dataclass(frozen=True)
class Row:
    """One thing that is tried. Its name is its own, and the same each time."""

    stream: str
    operation: str
    fault: str  # a harm, or a disturbance
    place: str = ""  # of a harm: a pattern below the lake; of a disturbance: where it comes

    @property
    def name(self) -> str:
        return " | ".join((self.stream, self.operation, self.fault, self.place))

    @property
    def of_model(self) -> Fault:
        """The row of the fault model that it tries."""
        if self.fault in DISTURBED:
            return DISTURBED[self.fault]
        if self.place in WHOLE:
            return WHOLE[self.place][self.fault]
        if self.place.startswith(INGESTED):
            return Fault.INGESTED
        return Fault.OTHER_TIMES if self.place in FOLDERS else Fault.UNREADABLE

    @property
    def needs_spark(self) -> bool:
        return self.operation in ON_SPARK or self.place in STATE_FILES

    @property
    def is_read_by_spark(self) -> bool:
        """True if Spark comes upon what was harmed: other words, and perhaps another end."""
        return self.place.startswith(READ_BY_SPARK)


def rows() -> list[Row]:
    """But for restatements of an update table, which are refused: it shows the live state."""
    refused = ("user_counts", "restate")
    all_rows = chain(_harmed(), _disturbed())
    return [row for row in all_rows if (row.stream, row.operation) != refused]


FOLDERS = (*TABLES, CHECKPOINT)


def _harmed() -> Iterator[Row]:
    files = [*CHECKPOINT_FILES, *STATE_FILES]
    files += [f"{table}/{part}" for table in TABLES for part in OF_TABLE]
    files += [f"{table}{part}" for table in OPS for part in OF_OPS]
    places = [(place, harm) for place in files for harm in harms_of(place)]
    places += [(table, harm) for table in FOLDERS for harm in OF_FOLDERS]
    for place, harm in places:
        for stream in STREAMS:
            for operation in ("batch", "no data"):
                yield Row(stream, operation, harm, place)
        # Each place and harm with one of the others: all with all would be as much again, six times.
        random = Random(f"{place} {harm}")
        others = sorted(OPERATIONS.keys() - {"batch", "no data"})
        yield Row(random.choice(sorted(STREAMS)), random.choice(others), harm, place)
    for place, how in WHOLE.items():
        for harm in how:
            for stream in STREAMS:
                for operation in AFTER_WHOLE:
                    yield Row(stream, operation, harm, place)


def harms_of(file: str) -> list[str]:
    """The harms by which it is another file than it can be."""
    left_out = {"older", *(["one bit flipped"] if file in TEXTS else [])}
    if file.startswith(OPS):
        left_out |= {"deleted", "one bit flipped"}
    return [harm for harm in OF_FILES if harm not in left_out]


# Before which write a run dies or is stopped, on average of all that it has.
MOST_WRITES = {
    "batch": 40,
    "no data": 6,
    "savepoint": 12,
    "restate": 16,
    "rebuild": 24,
    "compaction": 20,
}
DISTURBED = {
    "killed": Fault.KILLED,
    "two drivers": Fault.TWO_DRIVERS,
    "disk full": Fault.NO_ROOM,
    "read-only": Fault.NO_ROOM,
    "file descriptors": Fault.NO_ROOM,
    "clock +400 days": Fault.CLOCK,
    "clock -400 days": Fault.CLOCK,
}


def _disturbed() -> Iterator[Row]:
    disturbances = [fault for fault in DISTURBED if fault not in ("killed", "two drivers")]
    for stream in STREAMS:
        for operation, most in MOST_WRITES.items():
            for number in range(1, most + 1):
                yield Row(stream, operation, "killed", f"write {number}")
            for number in range(1, most + 1, 5):
                yield Row(stream, operation, "two drivers", f"write {number}")
            for fault in disturbances:
                yield Row(stream, operation, fault)


def without_jvm() -> list[Row]:
    return [row for row in rows() if not row.needs_spark]


def on_spark() -> list[Row]:
    return [row for row in rows() if row.is_read_by_spark]


def chosen(rows: list[Row], seed: int, count: int) -> list[Row]:
    """So many of them, other ones for each seed."""
    return Random(seed).sample(rows, count)


def newest(root: Path, pattern: str) -> Path | None:
    """The newest file or folder of the pattern; None where the lake has none."""
    found = [path for path in root.glob(pattern) if not path.name.startswith(".")]
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)
