"""Connectors: where a source's rows come from, what of it no batch has, and how it is read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from include.lake.columns import Column
from include.lake.findings import Finding
from include.lake.paths import LakeError
from include.landing.batch import Batch, Done, Split
from include.origins import KafkaTopic
from include.settings import Source

# A batch is one commit, and its plan one piece: of small files no more than this many.
FILES_A_BATCH = 10_000
Outcome = dict[str, Any]  # what becomes of a row, or of a file: see include/landing/parse_files.py


class OriginError(LakeError):
    """Where a source's rows come from cannot be read, or has lost some that were not taken."""

    code = "lost_input"


class Cut(NamedTuple):
    """What the next batch is to take."""

    splits: Sequence[Split]
    passed_over: Sequence[Finding] = ()  # on what of it is not taken, as the source declares


class GoesOn(NamedTuple):
    """Where an origin that has lost something is gone on with, behind that."""

    what: str  # is given up
    lost: int  # the number of offsets, or versions, or files that are known to be lost
    splits: Sequence[Split]  # of a batch of no rows, behind which the next one begins


# All outcomes of one split of a batch, wherever it is called.
ReadSplit = Callable[[Split], Iterator[Outcome]]


class Connector(Protocol):
    """Landed files, a topic or others' table, as it is when first asked.

    All methods raise OriginError where that cannot be seen.
    """

    def cut(self, done: Done) -> Cut:
        """The first of it that makes one commit, and no batch has; OriginError for what is lost."""

    def waiting(self, done: Done) -> int:
        """The number of files, or offsets, that no batch has; at least 1 where a run would fail."""

    def is_little(self, done: Done) -> bool:
        """Whether what waits is better taken in without a JVM."""

    def why_behind(self, done: Done) -> str | None:
        """What is known to be missing once all was drained; None when nothing is."""

    def goes_on(self, done: Done) -> GoesOn | None:
        """Behind what is lost; None when nothing is."""

    def reader(self, batch: Batch) -> ReadSplit:
        """What gives the outcomes of one of the batch's splits."""


def come_meanwhile(count: int, what: str, place: str) -> str | None:
    """Say that so many have come while others were taken; None when none has."""
    return f"{count} more {what}(s) have come to {place} meanwhile" if count else None


OF_KAFKA = (
    Column("kafka_partition", "int", "The partition of the topic; null for a clock row"),
    Column("kafka_offset", "bigint", "Its offset in that partition; null for a clock row"),
)
MESSAGE = Column(
    "kafka_message", "string", "The message's key, headers and time, as JSON, for re-ingestion"
)


# What a connector adds to bronze, and to quarantine.
COLUMNS: Mapping[type, tuple[tuple[Column, ...], tuple[Column, ...]]] = {
    KafkaTopic: (OF_KAFKA, (*OF_KAFKA, MESSAGE))
}


def origin_columns(source: Source) -> tuple[Column, ...]:
    """Those of its bronze."""
    return COLUMNS.get(type(source.origin), ((), ()))[0]


def refused_columns(source: Source) -> tuple[Column, ...]:
    """Those of its quarantine."""
    return COLUMNS.get(type(source.origin), ((), ()))[1]
