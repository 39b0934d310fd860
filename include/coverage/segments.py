"""What is left of a ledger's entries when later ones override earlier ones.

Like paint: a run of live, a recompute and a reseed each cover a part of the table's time; a
reseed also wipes off what is after it, as its commit deletes those rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from include.coverage.entries import Entry

BEGINNING_US = -(2**63)
FOR_EVER_US = 2**63 - 1


@dataclass(frozen=True)
class Segment:
    """A part of the table's time, and the entry that its rows are of."""

    from_us: int  # BEGINNING_US: from the beginning
    until_us: int
    entry: Entry


def segments_of(entries: Iterable[Entry]) -> list[Segment]:
    """The parts of the table's time that an entry covers, in order; what none covers is left out."""
    hidden, seen = _Union(), []
    for entry in sorted(entries, key=lambda entry: entry.number, reverse=True):
        from_us = BEGINNING_US if entry.from_us is None else entry.from_us
        until_us = from_us if entry.until_us is None else entry.until_us
        seen += [Segment(*part, entry) for part in hidden.gaps(from_us, until_us)]
        hidden.add(from_us, FOR_EVER_US if entry.kind in ("reseed", "void") else until_us)
    return sorted(seen, key=lambda segment: segment.from_us)


def is_by_other_code(entries: Iterable[Entry], wanted: Entry) -> bool:
    """Whether rows of the table within the instants of `wanted` are by code that is not of its own."""
    own = segments_of([wanted])
    return any(
        not set(part.entry.codes) <= set(wanted.codes)
        for part in segments_of(entries)
        if any(part.from_us < one.until_us and part.until_us > one.from_us for one in own)
    )


class _Union:
    """Intervals joined, as its parts: in order, and none touches the next."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, from_us: int, until_us: int) -> None:
        if from_us >= until_us:
            return
        first, after = bisect_left(self._ends, from_us), bisect_right(self._starts, until_us)
        if first < after:  # parts that it touches become one with it
            from_us = min(from_us, self._starts[first])
            until_us = max(until_us, self._ends[after - 1])
        self._starts[first:after] = [from_us]
        self._ends[first:after] = [until_us]

    def gaps(self, from_us: int, until_us: int) -> Iterator[tuple[int, int]]:
        """What of an interval no part holds."""
        at = bisect_right(self._ends, from_us)
        while from_us < until_us:
            start = self._starts[at] if at < len(self._starts) else until_us
            if from_us < min(start, until_us):
                yield from_us, min(start, until_us)
            from_us = self._ends[at] if at < len(self._ends) else until_us
            at += 1
