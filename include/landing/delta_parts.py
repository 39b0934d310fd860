"""How the ingest log names what was taken of somebody else's Delta table.

Each file with the version that added it, `12/part-0.parquet`, and `12/?commit/5e1f...` once all of that
version is taken, with a mark of its commit: `12/` alone where that could not be read.
"""

from typing import NamedTuple

# In place of a file: the version deletes or updates rows, and is passed over.
PASSED_OVER = "?passed-over"
# Before the mark of a version's commit.
COMMIT = "?commit/"
# Where a table that was made anew is begun with.
BEGINS = "0/?begins"


class VersionPart(NamedTuple):
    """A file that a version of the table has added."""

    version: int
    path: str  # below the table

    @property
    def name(self) -> str:
        """As the ingest log has it."""
        return f"{self.version}/{self.path}"

    @property
    def is_file(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.path) and not self.path.startswith("?")

    @property
    def is_end(self) -> bool:
        """Whether it says that all of the version is taken."""
        return not self.path or self.path.startswith(COMMIT)

    @property
    def mark(self) -> str | None:
        """Of the commit of a version that is taken, by which it is known again; None: not remembered."""
        return self.path.removeprefix(COMMIT) if self.path.startswith(COMMIT) else None


def part_named(name: str) -> VersionPart:
    """The other way round."""
    version, _, path = name.partition("/")
    return VersionPart(int(version), path)
