"""Who reads bronze commit by commit, how far they are, and what they still need of it.

OPTIMIZE replaces files that a reader which is behind has not read yet: it goes on reading
the replaced ones, for as long as VACUUM leaves them. And it reads each commit in the log, for
as long as the log keeps it. A reader that is up to date needs neither (but see
`include/checkpoint/log_retention.py`).

A reseed makes a reader before it has a checkpoint: the new generation will begin with the
commit after the version that was replayed. What it replays itself are rows of the newest
version, which needs nothing of the past.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from deltalake import DeltaTable
from pyarrow import fs

from include.checkpoint.offsets import newest_committed, newest_planned
from include.checkpoint.position import BronzePosition, read_position
from include.lake.delta_log import adds_data, made_at, read_actions
from include.lake.generations import GenerationRow, is_reseeded, read_generations
from include.lake.paths import Lake
from include.registry import stream_names


@dataclass(frozen=True)
class Reader:
    """A checkpoint, or where one will be, and the first version that it has not read."""

    stream: str
    checkpoint: str
    next_version: int
    # None of its batches is committed. Of a first run: it reads a whole version, not only
    # commits. After a reseed: Delta begins with just that commit, whatever is in it.
    is_starting: bool
    is_leftover: bool  # no stream of include/settings.py has this name any more


@dataclass(frozen=True)
class Lag:
    """The first commit that a reader still needs, and when that was made."""

    reader: Reader
    version: int
    since: datetime | None  # None: the log no longer has it


def readers_of(lake: Lake, table_id: str) -> list[Reader]:
    """All checkpoints in the lake that read the table of that id, or that a reseed will make.

    A stream without either is none: it will start from what is the newest version then. Raises
    LakeError for a checkpoint whose position cannot be read.
    """
    known = set(stream_names())
    in_lake = set(_folders(lake, f"{lake.root}/checkpoints")) - {"ingest"}
    return [
        Reader(stream, checkpoint, position.version, is_starting, stream not in known)
        for stream in sorted(known | in_lake)
        for checkpoint, position, is_starting in _positions(lake, stream)
        # Of another table: one that was under this name before, or another source's.
        if position.table_id == table_id
    ]


def _positions(lake: Lake, stream: str) -> Iterator[tuple[str, BronzePosition, bool]]:
    """Where the stream's checkpoint would go on, and one that a reseed is about to make."""
    generations = read_generations(lake, stream)
    row, checkpoint = generations.current, lake.checkpoint(stream, generations.number)
    committed = newest_committed(lake, checkpoint)
    if row is not None and is_reseeded(row) and committed is None:
        # Also when its first batch has been planned: that begins there.
        yield checkpoint, _after(row), True
    else:
        batch = newest_planned(lake, checkpoint) if committed is None else committed
        if batch is not None:
            position = read_position(lake, f"{checkpoint}/offsets/{batch}")
            yield checkpoint, position, committed is None
    intent = generations.intent
    if intent is not None:
        yield lake.checkpoint(stream, intent["generation"]), _after(intent), True


def _after(row: GenerationRow) -> BronzePosition:
    return BronzePosition(row["bronze_id"], row["bronze_version"] + 1)


def _folders(lake: Lake, path: str) -> list[str]:
    selector = fs.FileSelector(lake.path_in_filesystem(path), allow_not_found=True)
    found = lake.filesystem.get_file_info(selector)
    return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)


def read_lags(lake: Lake, path: str, table: DeltaTable) -> list[Lag]:
    """The readers of the table at `path` that still need something of its past."""
    readers = readers_of(lake, str(table.metadata().id))
    lags = (_read_lag(lake, path, table.version(), reader) for reader in readers)
    return [lag for lag in lags if lag is not None]


def _read_lag(lake: Lake, path: str, newest: int, reader: Reader) -> Lag | None:
    for version in range(reader.next_version, newest + 1):
        try:
            actions = read_actions(lake, path, version)
        except FileNotFoundError:
            return Lag(reader, version, None)
        # What OPTIMIZE replaced may be of the version that a starting reader reads.
        if adds_data(actions) or reader.is_starting:
            return Lag(reader, version, made_at(actions))
    return None
