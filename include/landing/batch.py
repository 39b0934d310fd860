"""What ingestion takes in at once, and what is done, by the ingest log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from include.fold.admission import EPOCH


class Split(NamedTuple):
    """What is read in one piece, as a row of the ingest log has it.

    A landed file; offsets of a topic's partition; of a table a file that a version has added, or,
    without a name, versions of which nothing is left to read.
    """

    name: str | None  # the file, below landing/<source> or the table; the topic
    partition: Any = None  # these are numbers, or null
    first: Any = None  # offset, or version
    until: Any = None  # that behind the last
    origin_id: str | None = None  # of the topic or table
    bytes: int = 0  # about
    modified_at: datetime | None = None  # of a file
    commit_id: str | None = (
        None  # by which the last version is known again; None: it could not be read
    )

    @property
    def source_file(self) -> str:
        """As bronze names where its rows come from."""
        if self.partition is not None:
            return f"{self.name}/{self.partition}"
        return str(self.name) if self.first is None else f"{self.first}/{self.name}"

    def __str__(self) -> str:
        if self.name is None:
            return f"version {self.until - 1}"
        offsets = "" if self.partition is None else f"/{self.first}-{self.until}"
        return f"{self.source_file}{offsets}"


def written_at(micros: int) -> datetime | None:
    """The instant, as a file's metadata has it; None of one that Python has none for."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


COLUMNS = ["split", *Split._fields[1:]]  # of the ingest log


@dataclass(frozen=True)
class Batch:
    """What is taken in at once."""

    number: int
    splits: Sequence[Split]  # those that are read
    ingested_at_us: int  # by which its rows are judged


class Done:
    """All that was taken: the rows of splits of the ingest log."""

    def __init__(self, rows: pa.Table | None = None) -> None:
        self._rows = rows

    @cached_property
    def names(self) -> frozenset[str]:
        """Of landed files all there is to know; quicker to have than `splits`."""
        return frozenset() if self._rows is None else frozenset(self._rows["split"].to_pylist())

    @cached_property
    def splits(self) -> list[tuple[int, Split]]:
        """Each with its batch, the older first."""
        if self._rows is None:
            return []
        rows = self._rows.sort_by("batch")
        values = zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True)
        return list(zip(rows["batch"].to_pylist(), map(Split._make, values), strict=True))

    @property
    def origin_id(self) -> str | None:
        """Of the newest; None also of landed files, and before the first."""
        return self.splits[-1][1].origin_id if self.splits else None

    def has_origin(self) -> bool:
        """Whether something was taken of a topic or a table; False also before the first."""
        return self._rows is not None and self._rows["origin_id"].null_count < len(self._rows)
