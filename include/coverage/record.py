"""What each commit to a stream's table says of the stream: its record.

A clean savepoint proves that a *state* is right. What the *table* holds is another matter: it can be
rewound, lost, put back from an older copy, or computed by other code. So each commit of ours says which
instants of the table are of which fold, and how far live has come: whoever decides reads it there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from include.lake.generations import ROW, GenerationRow, Generations, row_as_json, row_of_json
from include.lake.table import Record

Kind = Literal["live", "recompute", "reseed"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Instants `[from_us, until_us)` of a table, and the fold that their rows are of.

    That fold has all rows of bronze up to the pin; a live one also those up to `read_version`
    that were not late under `delay_us`; and none of the others. Instants are microseconds on the
    stream's clock; `from_us` None is the beginning, `until_us` None nothing.
    """

    kind: Kind
    from_us: int | None = None
    until_us: int | None = None
    generation: int
    run_id: str | None = None
    delay_us: int
    codes: tuple[str, ...]  # all that the state ever went through, the newest last
    bronze_id: str | None = None
    bronze_version: int | None = None  # the pin; None: no row is in the fold for sure
    bronze_ingested_at_us: int | None = None
    read_version: int | None = None
    read_commit: str | None = None  # which commit of bronze that was: numbers come again
    batch_id: int | None = None  # live: the newest that is counted in
    mapped_from: str | None = None  # the code whose states a migration has mapped
    number: int = 0  # in the stream's record, from 1: a later entry overrides earlier ones


@dataclass(frozen=True, kw_only=True)
class StreamRecord:
    """The record of a stream, as of one commit to its table; without entries, of a new one."""

    stream: str
    row: GenerationRow | None = None  # of live's generation
    entries: tuple[Entry, ...] = ()  # in order; those that later ones hide as a whole are left out
    plan: str | None = None  # hash of that of live's newest batch, in its checkpoint
    totals: Mapping[str, Any] = field(
        default_factory=dict
    )  # of live's generation, after that batch
    dead_letters: int = 0  # number of the commit to the dead letters that it counts on
    dead_letters_commit: str | None = None  # which commit that was: numbers come again

    @property
    def own(self) -> Entry | None:
        """The newest entry that says how far the whole table has come."""
        return newest_own(self.entries)

    def batch_of(self, generation: int) -> int | None:
        """The newest batch of a generation that is in the table; None: none is."""
        own = self.own
        is_of_it = own is not None and (own.kind, own.generation) == ("live", generation)
        return own.batch_id if own is not None and is_of_it else None

    def with_entry(self, entry: Entry) -> "StreamRecord":
        """The record after a commit that the entry is of: a new one, or one with its number."""
        number = entry.number or 1 + max((known.number for known in self.entries), default=0)
        others = [known for known in self.entries if known.number != number]
        entries = sorted([*others, replace(entry, number=number)], key=lambda each: each.number)
        return replace(self, entries=tuple(_needed(entries)))

    def as_json(self) -> Record:
        """It in plain values, without what is not known."""
        known = [{n: v for n, v in asdict(e).items() if v is not None} for e in self.entries]
        row = None if self.row is None else row_as_json(self.row)
        until_us = None if self.own is None else self.own.until_us
        said = {"entries": known, ROW: row, "complete_until_us": until_us}
        return asdict(replace(self, row=None)) | said


def record_in(told: Mapping[str, Any]) -> StreamRecord:
    """The record in what a commit says of itself."""
    names = StreamRecord.__dataclass_fields__
    entries = tuple(Entry(**each | {"codes": tuple(each["codes"])}) for each in told["entries"])
    row = None if told[ROW] is None else row_of_json(told[ROW])
    known = {n: told[n] for n in names if n in told}
    return StreamRecord(**known | {"entries": entries, "row": row})


def recorded(generations: Generations) -> StreamRecord:
    """The record that was read with a stream's generation; that of a new stream where there is none, or
    others have changed the table since."""
    told = generations.told
    if told is None or generations.mismatch is not None:
        return StreamRecord(stream=generations.stream)
    return record_in(told)


def newest_own(entries: Sequence[Entry]) -> Entry | None:
    """The newest entry that says how far the whole table has come: no recompute does."""
    own = [entry for entry in entries if entry.kind != "recompute"]
    return max(own, key=lambda entry: entry.number, default=None)


def _needed(entries: Sequence[Entry]) -> Iterator[Entry]:
    seen = {part.entry.number for part in segments_of(entries)}
    own = newest_own(entries)
    return (each for each in entries if each.number in seen or each is own or each.mapped_from)


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
    seen: list[Segment] = []
    for entry in sorted(entries, key=lambda entry: entry.number):
        from_us = BEGINNING_US if entry.from_us is None else entry.from_us
        until_us = from_us if entry.until_us is None else entry.until_us
        hidden_until_us = FOR_EVER_US if entry.kind == "reseed" else until_us
        if from_us < hidden_until_us:
            seen = [part for known in seen for part in _around(known, from_us, hidden_until_us)]
        if from_us < until_us:
            seen.append(Segment(from_us, until_us, entry))
    return sorted(seen, key=lambda segment: segment.from_us)


def _around(segment: Segment, from_us: int, until_us: int) -> list[Segment]:
    """What is left of a part under a later entry."""
    if segment.until_us <= from_us or until_us <= segment.from_us:
        return [segment]
    before = Segment(segment.from_us, min(segment.until_us, from_us), segment.entry)
    behind = Segment(max(segment.from_us, until_us), segment.until_us, segment.entry)
    return [part for part in (before, behind) if part.from_us < part.until_us]
