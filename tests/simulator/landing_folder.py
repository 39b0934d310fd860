"""The files that producers land in a simulation: of rows, and now and then of one of them again."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.simulator.shaped_rows import landed_file
from tests.simulator.shapes import Landed, Shape

AGAIN = 0.4


class LandingFolder:
    """`landing/<source>` of a lake."""

    def __init__(self, path: str, shape: Shape) -> None:
        self._folder = Path(path)
        self._shape = shape
        self._contents: list[bytes] = []
        self._written = 0
        self._landed: list[Path] = []  # last

    def write(self, rows: Sequence[Landed], chance: Random) -> bool:
        """Land rows as a file; whether they are to be taken: of a shape with copies, whatever has
        the content of an earlier file is not."""
        content = landed_file(rows, self._shape)
        self._landed = []
        self._land(content)
        if not self._shape.copies:
            return True
        is_new = content not in self._contents
        self._contents.append(content)
        if chance.random() < AGAIN:
            self._land(chance.choice(self._contents))
        return is_new

    def take_back(self) -> None:
        """What was written last: nobody has taken it."""
        for path in self._landed:
            path.unlink()
        self._contents = self._contents[:-1]

    def _land(self, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._written += 1
        path = self._folder / f"{self._written:06}.{self._shape.format}"
        path.write_bytes(content)
        self._landed.append(path)
