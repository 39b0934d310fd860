"""What ingestion takes in at once, and what it has taken, by the ingest log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Batch:
    """What is taken in at once."""

    number: int
    # Files below landing/<source>; or what else a source's rows come in: ranges of a topic's
    # offsets, files of a table. Each with about its bytes.
    sizes: Mapping[str, int]
    ingested_at_us: int  # by which its rows are judged
    origin_id: str | None = None  # of the topic or table; None: files in landing

    @property
    def files(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.sizes)


class Part(NamedTuple):
    """One of the files, or ranges, of a batch, where they are of a topic or a table."""

    batch: int
    name: str
    origin_id: str


@dataclass(frozen=True)
class Position:
    """All that was taken."""

    newest: int = -1  # batch
    taken: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()  # `taken`, of a topic or a table, by batch
