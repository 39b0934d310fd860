"""The versions of a state store: which can be read, and what a start and a repair need.

Spark loads version v from the newest snapshot up to v, and then replays the change logs after
it. When that snapshot cannot be loaded, it begins at an older one, and at last at version 0,
the empty state.
"""

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class StoreVersions:
    """What one store has; `start` is the version that the stream's next batch loads."""

    snapshots: Set[int]  # whole ones: a start that finds another goes on to an older one
    changelogs: Set[int]
    start: int

    @cached_property
    def readable(self) -> Set[int]:
        """The versions up to `start` that can be loaded."""
        found = {0}
        for version in sorted(self.snapshots | self.changelogs):
            if version in self.snapshots or version - 1 in found:
                found.add(version)
        return {version for version in found if 0 < version <= self.start}

    @cached_property
    def loadable_snapshots(self) -> Set[int]:
        """Those that a start can begin with."""
        return {version for version in self.snapshots if version <= self.start}

    @cached_property
    def newest_snapshot(self) -> int:
        """What a start begins with; 0 for the empty state."""
        return max(self.loadable_snapshots, default=0)

    @cached_property
    def replayed(self) -> Set[int]:
        """The change logs that a start replays."""
        first, last = self.newest_snapshot, self.start
        return {version for version in self.changelogs if first < version <= last}

    @cached_property
    def repair_base(self) -> int:
        """What a start begins with when the newest snapshot cannot be loaded.

        The newest snapshot itself where nothing older leads to it.
        """
        older = [version for version in self.loadable_snapshots if version != self.newest_snapshot]
        if older:
            return max(older)
        logs = sum(version <= self.newest_snapshot for version in self.changelogs)
        return 0 if logs == self.newest_snapshot else self.newest_snapshot

    @property
    def missing(self) -> int | None:
        """The first version without which `start` cannot be loaded; None when it can be."""
        if self.start == 0 or self.start in self.readable:
            return None
        version = self.newest_snapshot + 1
        while version in self.changelogs:
            version += 1
        return version
