"""What replacing a range of a table's rows has changed."""

from typing import NamedTuple


class RangeChange(NamedTuple):
    """Rows of a range before and after, and how many of them differ."""

    before: int
    after: int
    removed: int
    added: int


NO_CHANGE = RangeChange(0, 0, 0, 0)
