"""The ledger of what a stream's table holds, `ops/coverage`: its entries, and their rows.

A clean savepoint proves that a *state* is right. What the *table* holds is another matter: it
can be rewound, lost, put back from an older copy, or computed by other code. So each writer of a
table says here what it has written, and whoever decides reads it here.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from include.fold.admission import instant_of, micros_of
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake

Kind = Literal["live", "recompute", "reseed", "void"]
LEDGER = "coverage"
CODES = ","
INSTANTS = ("from_us", "until_us", "bronze_ingested_at_us")
COLUMN_OF = {"from_us": "from", "until_us": "until", "bronze_ingested_at_us": "bronze_ingested_at"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Instants `[from_us, until_us)` of a table, and the fold that their rows are of.

    That fold has all rows of bronze up to the pin; a live one also those up to `read_version`
    that were not late under `delay_us`; and none of the others. Instants are microseconds on the
    stream's clock; `from_us` None is the beginning, `until_us` None nothing.
    """

    stream: str
    kind: Kind
    from_us: int | None
    until_us: int | None
    generation: int
    run_id: str | None
    delay_us: int
    codes: tuple[str, ...]  # all that the state ever went through, the newest last
    bronze_id: str | None
    bronze_version: int | None = None  # the pin; None: no row is in the fold for sure
    bronze_ingested_at_us: int | None = None
    read_version: int | None = None
    read_commit: str | None = None  # which commit of bronze that was: numbers come again
    batch_id: int | None = None  # live: the newest that is counted in
    mapped_from: str | None = None  # the code whose states a migration has mapped
    table_version: int | None = None  # all of the table's commits up to it are entered
    table_commit: str | None = None  # which commit that version is: numbers come again
    reason: str | None = None  # void: what was found
    number: int = 0  # in the stream's ledger, from 1: a later entry overrides earlier ones

    def row(self) -> dict[str, Any]:
        """The row of `ops/coverage`."""
        row = asdict(self) | {"codes": CODES.join(self.codes)}
        return {COLUMN_OF.get(name, name): _stored(name, value) for name, value in row.items()}


def _stored(name: str, value: Any) -> Any:
    return instant_of(value) if name in INSTANTS and value is not None else value


def entry_of(row: Mapping[str, Any]) -> Entry:
    """The entry of a row of `ops/coverage`."""
    known = {name: row[COLUMN_OF.get(name, name)] for name in Entry.__dataclass_fields__}
    for name in INSTANTS:
        known[name] = None if known[name] is None else micros_of(known[name])
    known["codes"] = tuple(filter(None, known["codes"].split(CODES)))
    return Entry(**known)


def read_entries(lake: Lake, stream: str) -> list[Entry]:
    """The stream's ledger, oldest entry first."""
    rows = read_ops(lake, LEDGER, {"stream": stream}).to_pylist()
    return sorted(map(entry_of, rows), key=lambda entry: entry.number)


def add_entries(lake: Lake, entries: Sequence[Entry]) -> None:
    """Write more entries, with their numbers, in one commit. Under the stream's lease."""
    append_ops(lake, LEDGER, [entry.row() for entry in entries])


def change_entry(lake: Lake, entry: Entry) -> None:
    """Write an entry in place of the one of its number. Under the stream's lease."""
    update_ops(lake, LEDGER, ["stream", "number"], [entry.row()])


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
