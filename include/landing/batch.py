"""What ingestion takes in at once, and how far it has come: as the position has them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

# Before the name of a landed file in the position, as no name begins: it was given up. Quarantine has
# it as a whole; or, of one that was kept, the tables have what was read of it.
GIVEN_UP, KEPT = "/", "//"


def marks_among(names: Iterable[str]) -> dict[str, str]:
    """The files whose marks are among the names of a batch in the position, each with its mark."""
    marked = (name for name in names if name.startswith(GIVEN_UP))
    return {name.lstrip("/"): KEPT if name.startswith(KEPT) else GIVEN_UP for name in marked}


@dataclass(frozen=True)
class Batch:
    """What is taken in at once: the same each time that it is repeated."""

    position_id: str  # of the sequence that it is a number of
    number: int
    # Files below landing/<source>; or what else a source's rows come in: ranges of a topic's
    # offsets, files of a table.
    files: tuple[str, ...]
    ingested_at_us: int
    origin_id: str | None = None  # of the topic or table; None: files in landing
    # Those of the files that are not read any more: GIVEN_UP or KEPT.
    given_up: Mapping[str, str] = field(default_factory=dict)


class Part(NamedTuple):
    """One of the files, or ranges, of a batch that is done, where they are of a topic or a table."""

    batch: int
    name: str
    origin_id: str


@dataclass(frozen=True)
class Position:
    """The files of all batches that are done, and the batch that was begun and is not."""

    id: str
    newest: int  # batch that was planned; -1 before the first
    taken: frozenset[str]
    open: Batch | None
    # The newest batch that gave rows to bronze and to quarantine, where that is recorded.
    gave: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()  # `taken`, of a topic or a table, by batch

    @cached_property
    def planned(self) -> frozenset[str]:
        """The files of the open batch."""
        return frozenset(self.open.files if self.open else ())
