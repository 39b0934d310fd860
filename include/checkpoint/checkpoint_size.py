"""What is known of a checkpoint after it has been measured."""

from dataclasses import dataclass
from datetime import datetime

from include.checkpoint.checkpoint_files import Part
from include.checkpoint.store_size import Fault, StoreSize


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a query has come: the newest batch that it has begun, and finished."""

    planned: int | None  # in offsets/
    committed: int | None  # in commits/

    @property
    def uncommitted(self) -> int:
        """Batches that were begun, and not finished: Spark repeats the last of them."""
        planned, committed = (-1 if n is None else n for n in (self.planned, self.committed))
        return max(planned - committed, 0)

    @property
    def next_version(self) -> int:
        """The version of the state that the next batch loads: its own number."""
        if self.planned is None:
            return 0
        return self.planned if self.uncommitted else self.planned + 1


@dataclass(frozen=True, kw_only=True)
class PartSize:
    """One part of a checkpoint; "state" is all state stores together."""

    part: Part
    bytes: int
    files: int
    orphan_files: int
    orphan_bytes: int


@dataclass(frozen=True, kw_only=True)
class CheckpointSize:
    """A checkpoint as it was when it was listed. Paths in it begin below its folder.

    Without a file it has no parts. State of another provider or format version is counted as
    a part, but not looked into: it has no `stores`.
    """

    stream: str
    generation: int
    checkpoint: str
    measured_at: datetime
    position: Position
    parts: tuple[PartSize, ...] = ()
    stores: tuple[StoreSize, ...] = ()
    missing: tuple[str, ...] = ()  # the next batch cannot start without them
    unreadable: tuple[Fault, ...] = ()  # nor with these
    damaged: tuple[Fault, ...] = ()  # snapshots that cannot be loaded
    foreign: tuple[str, ...] = ()  # state of another provider or format version
    ahead: tuple[str, ...] = ()  # snapshots of versions that no batch can have made
    left_over: tuple[str, ...] = ()  # files of no version present
    unknown: tuple[str, ...] = ()
    misnamed: tuple[str, ...] = ()  # of the unknown, those that Spark takes for versions of state

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def files(self) -> int:
        return sum(part.files for part in self.parts)

    @property
    def state_bytes(self) -> int:
        return sum(part.bytes for part in self.parts if part.part == "state")

    @property
    def garbage_files(self) -> int:
        return sum(store.garbage_files for store in self.stores)

    @property
    def garbage_bytes(self) -> int:
        return sum(store.garbage_bytes for store in self.stores)

    @property
    def garbage_share(self) -> float:
        """The part of the state's bytes that neither a start nor a repair needs."""
        return self.garbage_bytes / self.state_bytes if self.state_bytes else 0.0

    @property
    def replay_versions(self) -> int:
        """The most change logs that a partition replays at a start."""
        return max((store.replay_versions for store in self.stores), default=0)
