"""What has come for a source, listed once, and how it is cut into batches."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from include.lake.columns import Column
from include.lake.paths import LakeError
from include.landing.batch import Position
from include.landing.landed_content import LandedFile
from include.origins import KafkaTopic
from include.settings import Source

# A batch is one commit, and its plan one piece: of small files no more than this many.
FILES_A_BATCH = 10_000


class OriginError(LakeError):
    """Where a source's rows come from cannot be read, or has lost some that were not taken."""

    code = "lost_input"


class Cut(NamedTuple):
    """What the next batch is to take: files or ranges by name, and the id of what they are of."""

    files: tuple[str, ...]
    origin_id: str | None = None


class GoesOn(NamedTuple):
    """Where an origin that has lost something is gone on with, behind that."""

    what: str  # is given up
    lost: int  # the number of offsets, or versions, or files that are known to be lost
    names: tuple[str, ...]  # of a batch of no rows, behind which the next one begins
    origin_id: str


class Arrivals(Protocol):
    """What was there when somebody looked."""

    def cut(self, source: Source, position: Position) -> Cut:
        """The first of it that makes one commit, and no batch has; OriginError for what is lost."""

    def sizes(self, files: Sequence[str]) -> Mapping[str, int]:
        """About how many bytes each of a batch's files has."""


class Listed(NamedTuple):
    """Files in landing."""

    files: Sequence[LandedFile]

    def cut(self, source: Source, position: Position) -> Cut:
        names: list[str] = []
        size = 0
        for file in self.files:
            if file.name in position.taken:
                continue
            size += file.bytes
            if names and (size > source.commit_bytes or len(names) == FILES_A_BATCH):
                break
            names.append(file.name)
        return Cut(tuple(sorted(names)))

    def sizes(self, files: Sequence[str]) -> Mapping[str, int]:
        known = {file.name: file.bytes for file in self.files}
        return {name: known.get(name, 0) for name in files}


OF_KAFKA = (
    Column("kafka_partition", "int", "The partition of the topic; null for a clock row"),
    Column("kafka_offset", "bigint", "Its offset in that partition; null for a clock row"),
)
MESSAGE = Column(
    "kafka_message", "string", "The message's key, headers and time, as JSON, for re-ingestion"
)


def origin_columns(source: Source) -> tuple[Column, ...]:
    """Those of its bronze."""
    return OF_KAFKA if isinstance(source.origin, KafkaTopic) else ()


def refused_columns(source: Source) -> tuple[Column, ...]:
    """Those of its quarantine."""
    return (*OF_KAFKA, MESSAGE) if isinstance(source.origin, KafkaTopic) else ()
