"""Whether bronze's log still has the commits that a stream's next run reads first, and how long.

Delta deletes commits that are older than the log's retention. A source that is silent for so long
has nothing new, and yet its streams need of its log: commits that brought no rows (OPTIMIZE, a
property, the still row of another stream), which no run has been worth; and those of their last
batch, where no batch without data followed it (late rows move no watermark, nor does a still
row). For Spark plans the last batch once more when it starts, though it is committed.

The first batch of a stream is a snapshot, and needs what leads to that version.

So a stream whose position has grown old reads a still row of its own, long before.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from include.checkpoint.offsets import newest_planned
from include.checkpoint.position import read_position
from include.checkpoint.vacuum_guard import LOG_RETENTION, LOG_SHARE, retention
from include.lake.delta_log import is_of_machine, made_at, read_actions
from include.lake.generations import Generations, is_reseeded
from include.lake.paths import Lake, LakeError
from include.lake.read_tables import table_to_read


@dataclass(frozen=True)
class Needed:
    """The first version of bronze that a stream's next run asks the log for."""

    version: int
    is_gone: bool  # the next run cannot go on
    made_at: datetime | None  # None: the log no longer has its commit
    kept: timedelta  # by the log

    @property
    def is_growing_old(self) -> bool:
        """Whether the next run is to read a still row, while the log is not yet cut there."""
        return self.made_at is not None and datetime.now(UTC) - self.made_at > self.kept * LOG_SHARE


def needed_commit(lake: Lake, generations: Generations, source: str) -> Needed | None:
    """None when the next run begins with a commit that is still to come, or with all of bronze."""
    bronze = lake.bronze(source)
    start = _start(lake, generations)
    if start is None or not lake.is_delta_table(bronze):
        return None
    table = table_to_read(bronze)
    if start.table_id != str(table.metadata().id) or start.version > table.version():
        return None
    made = _made_at(lake, bronze, start.version)
    is_gone = _is_unreadable(bronze, start.version) if start.is_snapshot else made is None
    kept = retention(table.metadata().configuration, LOG_RETENTION)
    return Needed(start.version, is_gone, made, kept)


def refuse_cut_off(lake: Lake, generations: Generations, source: str) -> None:
    """LakeError when bronze's log no longer has what the next run reads first."""
    stream, needed = generations.stream, needed_commit(lake, generations, source)
    if needed is not None and needed.is_gone:
        raise LakeError(
            f"{stream} would go on with version {needed.version} of {lake.bronze(source)}, but the "
            "clean-up of the table's log has taken that away. Put an older copy of the log's files "
            "back, or make the state anew from bronze, which has all its rows",
            code="cleaned_up_version",
            subject=f"bronze/{source}",
            command=f"./stateful reseed {stream} --apply",
        )


class _Start(NamedTuple):
    """Where the newest batch began: with a commit, or with all that was there by a version."""

    table_id: str
    version: int
    is_snapshot: bool = False


def _start(lake: Lake, generations: Generations) -> _Start | None:
    """None before the first batch, which reads a snapshot; after a reseed, the commits since."""
    row = generations.current
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    planned = newest_planned(lake, checkpoint)
    if not planned and row is not None and is_reseeded(row):
        return _Start(row["bronze_id"], row["bronze_version"] + 1)
    if planned is None:
        return None
    position = read_position(lake, f"{checkpoint}/offsets/{max(planned - 1, 0)}")
    if planned > 0:
        return _Start(position.table_id, position.version)
    return _Start(position.table_id, position.version - 1, is_snapshot=True)


def _made_at(lake: Lake, bronze: str, version: int) -> datetime | None:
    try:
        return made_at(read_actions(lake, bronze, version))
    except FileNotFoundError:
        return None


def _is_unreadable(bronze: str, version: int) -> bool:
    """Whether neither commits nor a checkpoint lead to that version any more."""
    try:
        return table_to_read(bronze, version=version).version() != version
    except DeltaError as error:
        if is_of_machine(error):
            raise
        return True
