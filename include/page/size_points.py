"""The checkpoint of a stream through time, as it was measured, and its newest partitions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import NamedTuple

from include.page.recorded import Recorded, Row
from include.settings import Stream

SIZE_SERIES = (
    "measured_at",
    "occasion",
    "part",
    "operator",
    "partition",
    "store",
    "bytes",
    "files",
    "replay_versions",
    "replay_bytes",
)


@dataclass(frozen=True, kw_only=True)
class SizePoint:
    """The checkpoint as it was measured."""

    measured_at: datetime
    occasion: str
    bytes_by_part: Mapping[str, int]
    files: int
    replay_versions: int
    skew: float | None  # of the state: the largest partition, in times of the median


class Measured(NamedTuple):
    """All measurements, and of the newest: partition, bytes, files."""

    sizes: tuple[SizePoint, ...]
    partitions: tuple[Row, ...]


def read_sizes(recorded: Recorded, stream: Stream) -> Measured:
    """Those of the window."""
    where = {"stream": stream.name}
    rows = recorded.in_window("checkpoint_sizes", "measured_at", where, SIZE_SERIES)
    measured = [list(group) for _, group in groupby(rows, lambda row: row["measured_at"])]
    newest = measured[-1] if measured else []
    return Measured(tuple(map(_size, measured)), _partitions(newest))


def _size(rows: Sequence[Row]) -> SizePoint:
    by_part: dict[str, int] = defaultdict(int)
    for row in rows:
        by_part[row["part"]] += row["bytes"]
    return SizePoint(
        measured_at=rows[0]["measured_at"],
        occasion=rows[0]["occasion"],
        bytes_by_part=by_part,
        files=sum(row["files"] for row in rows),
        replay_versions=max((row["replay_versions"] or 0 for row in rows), default=0),
        skew=max(_skews(rows), default=None),
    )


def _skews(rows: Sequence[Row]) -> Iterator[float]:
    """Of each store of an operator."""
    by_store: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in rows:
        if row["partition"] is not None:
            by_store[row["operator"], row["store"]].append(row["bytes"])
    for sizes in by_store.values():
        if middle := median(sizes):
            yield max(sizes) / middle


def _partitions(newest: Sequence[Row]) -> tuple[Row, ...]:
    stores = [row for row in newest if row["partition"] is not None]
    return tuple(sorted(stores, key=lambda row: (row["operator"], row["partition"])))
