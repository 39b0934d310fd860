"""What the position has of somebody else's Delta table: of the one with that id, and of none before it."""

from dataclasses import dataclass
from functools import cached_property

from include.landing.batch import Position
from include.landing.delta_parts import VersionPart, part_named


@dataclass(frozen=True)
class Taken:
    """Parts of its versions, by batch."""

    position: Position
    table_id: str

    @cached_property
    def parts(self) -> list[tuple[int, VersionPart]]:
        """Each with its batch."""
        ours = (part for part in self.position.parts if part.origin_id == self.table_id)
        return [(part.batch, part_named(part.name)) for part in ours]

    @cached_property
    def ends(self) -> list[VersionPart]:
        """The versions until which all was taken."""
        return [part for _, part in self.parts if part.is_end]

    @property
    def complete(self) -> int:
        """The version until which all is taken, by the newest batch that says so; -1 before the first."""
        return self.ends[-1].version if self.ends else -1

    @property
    def begun(self) -> int | None:
        """The version whose files, all that the table had, are taken first; None before the first is."""
        return next((part.version for _, part in self.parts if part.is_file), None)

    def behind(self) -> list[VersionPart]:
        """What is taken of versions behind the complete ones. Before an older copy of the table was gone
        on with, versions of the same numbers may have been others: of these only files are known again."""
        since = max((batch for batch, part in self.parts if part.is_end), default=0)
        return [
            part
            for batch, part in self.parts
            if batch >= since or (part.is_file and part.version > self.complete)
        ]
