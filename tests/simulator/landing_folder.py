"""The files that producers land in a simulation."""

from collections.abc import Sequence
from pathlib import Path

from tests.simulator.shaped_rows import landed_file
from tests.simulator.shapes import Landed, Shape


class LandingFolder:
    """`landing/<source>` of a lake."""

    def __init__(self, path: str, shape: Shape) -> None:
        self._folder = Path(path)
        self._shape = shape
        self._written = 0

    def write(self, rows: Sequence[Landed]) -> None:
        """Land rows as a file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._written += 1
        file = self._folder / f"{self._written:06}.{self._shape.format}"
        file.write_bytes(landed_file(rows, self._shape))
