"""The splits of a source: what a connector gives, and a batch has."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from include.connectors import KafkaTopic
from include.fold.admission import EPOCH
from include.lake.columns import Column
from include.lake.errors import LakeError
from include.lake.multiset import IS_WEIGHT, WEIGHT
from include.lake.ops import Finding
from include.settings import Source


class Split(NamedTuple):
    """The piece that one task reads: a landed file; offsets of a topic's partition; of a Delta table a file that
    a version has added, or, without a name, versions of which nothing is left to read."""

    name: str | None  # the file, below landing/<source> or the table; the topic
    partition: Any = None  # these are numbers, or null
    first: Any = None  # offset, or version
    until: Any = None  # that behind the last
    origin_id: str | None = None  # of the topic or table; None for a landed file alone
    bytes: int = 0  # about
    modified_at: datetime | None = None  # of a file

    @property
    def source_file(self) -> str:
        """The name of the split in bronze's column `source_file`."""
        if self.partition is not None:
            return f"{self.name}/{self.partition}"
        return str(self.name) if self.first is None else f"{self.first}/{self.name}"

    def __str__(self) -> str:
        if self.name is None:
            return f"version {self.until - 1}"
        offsets = "" if self.partition is None else f"/{self.first}-{self.until}"
        return f"{self.source_file}{offsets}"


def written_at(micros: int) -> datetime | None:
    """The instant of microseconds since 1970; None beyond the years of Python."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


SPLIT_COLUMNS = ["split", *Split._fields[1:]]  # of the ingest log


@dataclass(frozen=True)
class Batch:
    """The splits that one commit to the ingest log makes done."""

    number: int
    splits: Sequence[Split]
    ingested_at_us: int  # by which its rows are judged


class Done:
    """The splits of all batches, as the ingest log has them."""

    def __init__(self, rows: pa.Table | None = None) -> None:
        self._rows = rows

    @property
    def count(self) -> int:
        """The number of splits."""
        return 0 if self._rows is None else len(self._rows)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the splits, which is all that landed files need; faster than `splits`."""
        return frozenset() if self._rows is None else frozenset(self._rows["split"].to_pylist())

    @cached_property
    def splits(self) -> list[tuple[int, Split]]:
        """The splits with the number of their batch, the older first."""
        if self._rows is None:
            return []
        rows = self._rows.sort_by("batch")
        values = zip(*(rows[name].to_pylist() for name in SPLIT_COLUMNS), strict=True)
        return list(zip(rows["batch"].to_pylist(), map(Split._make, values), strict=True))

    @property
    def origin_id(self) -> str | None:
        """The id of the newest split's topic or table; None for landed files, and before the first."""
        return self.splits[-1][1].origin_id if self.splits else None

    def has_ids(self) -> bool:
        """True if a split is of a topic or a table."""
        return self._rows is not None and self._rows["origin_id"].null_count < len(self._rows)


# A batch is one commit, and its plan one piece: of small files no more than this many.
FILES_A_BATCH = 10_000


def one_commit(splits: Iterable[Split], source: Source) -> list[Split]:
    """The first of the splits, as many as one commit may have."""
    first: list[Split] = []
    size = 0
    for split in splits:
        size += split.bytes
        is_full = size > source.commit_bytes or len(first) >= FILES_A_BATCH
        if first and is_full and split.name is not None:  # what ends a version is of its last file
            break
        first.append(split)
    return first


Outcome = dict[str, Any]  # what becomes of a row, or of a file: see include/ingest/parse_files.py


class ConnectorError(LakeError):
    """A topic, table or file cannot be read, or has lost rows that no batch has."""

    code = "lost_input"

    @staticmethod
    def unreadable(subject: str, said: str) -> "ConnectorError":
        return ConnectorError(said, code="unreadable_input", subject=subject)

    @staticmethod
    def lost(source: str, said: str) -> "ConnectorError":
        said = f"{said}. Nothing is ingested. To go on behind what is lost"
        command = f"./stateful ingest {source} --accept-loss --apply"
        return ConnectorError(said, subject=source, command=command)


class NextSplits(NamedTuple):
    splits: Sequence[Split]
    ignored: Sequence[Finding] = ()  # on versions that the batch ignores, as the source declares


class Lag(NamedTuple):
    """The amount that no batch has."""

    waiting: int  # files, or offsets; at least 1 where a run would fail
    is_little: bool  # so that ingestion is faster without a JVM
    held: str | None = None  # why rows that are there cannot be read yet


class Loss(NamedTuple):
    """Rows that a topic or table has lost before a batch had them, and where to go on."""

    what: str
    lost: int  # the number of offsets, or versions, or files that are known to be lost
    splits: Sequence[Split]  # of a batch of no rows, behind which the next one begins

    def __str__(self) -> str:
        return f"{self.what}. It would go on behind {', '.join(map(str, self.splits))}"


# All outcomes of one split of a batch, wherever it is called.
ReadSplit = Callable[[Split], Iterator[Outcome]]


OF_KAFKA = (
    Column("kafka_partition", "int", "The partition of the topic; null for a heartbeat"),
    Column("kafka_offset", "bigint", "Its offset in that partition; null for a heartbeat"),
)
OF_PARENT = Column(
    WEIGHT,
    "int",
    "1, or -1 of a row that takes an equal one back; null for a heartbeat",
    marks={IS_WEIGHT: "true"},
)
OF_REFUSED = Column("kafka_message", "string", "The message, as JSON, for re-ingestion")


def connector_columns(source: Source, is_refused: bool = False) -> tuple[Column, ...]:
    """The columns that bronze, or quarantine, has for where a row came from."""
    if source.is_derived and not is_refused:
        return (OF_PARENT,)
    if not isinstance(source.connector, KafkaTopic):
        return ()
    return (*OF_KAFKA, OF_REFUSED) if is_refused else OF_KAFKA
