"""The ledger made anew from the marks in the table's own log, and how the two differ.

For when `ops/coverage` was lost, or somebody doubts it. What the log no longer has, or has from
somebody else, is proved by nothing: it is not recorded then, which is not right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from include.coverage.entries import LEDGER, Entry, add_entries, read_entries
from include.coverage.findings import instant_text
from include.coverage.ledger import NEVER_RECORDED, distrust_error, rebuilt_look
from include.coverage.marks import is_marked
from include.coverage.segments import Segment, segments_of
from include.lake.generations import read_generations
from include.lake.lease import hold_lease
from include.lake.open_delta import delta_table
from include.lake.ops import despite_others
from include.lake.paths import Lake
from include.lake.table_seal import seal, what_changed
from include.settings import Stream


@dataclass(frozen=True)
class Rebuilt:
    """A ledger as the log proves it, beside the one that is recorded."""

    stream: str
    recorded: tuple[Entry, ...]
    proved: tuple[Entry, ...]

    @property
    def differences(self) -> list[str]:
        """Where the two say another thing of the table, in words."""
        before, after = (_facts(segments_of(each)) for each in (self.recorded, self.proved))
        gone = [f"- {text}" for text in before if text not in after]
        return gone + [f"+ {text}" for text in after if text not in before]

    def text(self) -> str:
        """For people."""
        if not self.differences:
            return f"the ledger of {self.stream} says what the log of its table proves"
        lines = [f"the ledger of {self.stream} (-) and what the log of its table proves (+):"]
        return "\n  ".join([*lines, *self.differences])


def rebuild(lake: Lake, stream: Stream) -> Rebuilt:
    """The ledger as the table's log and the checkpoint prove it. Reads only."""
    recorded = tuple(read_entries(lake, stream.name))
    return Rebuilt(
        stream.name, recorded, rebuilt_look(lake, read_generations(lake, stream.name)).entries
    )


def apply_rebuilt(lake: Lake, stream: Stream) -> Rebuilt:
    """Write that ledger in the place of the recorded one, under the stream's lease.

    CoverageError when the table is not what it was after our last commit, or the ledger knows that it
    once was not, and of no reseed that has made all of it anew.
    """
    with hold_lease(lake, f"stream-{stream.name}"):
        changed = what_changed(lake, f"tables/{stream.name}", is_marked)
        known = _known_change(read_entries(lake, stream.name))
        if reason := changed or known:
            raise distrust_error(lake, stream.name, reason)  # its rows would count as ours
        made = rebuild(lake, stream)
        _replace(lake, stream.name, made)
        if lake.is_delta_table(lake.table(stream.name)):
            seal(lake, f"tables/{stream.name}")
        return made


def _known_change(entries: Sequence[Entry]) -> str | None:
    """What somebody found, and began to mend: the log of the table need not tell of it, as of rejected
    rows that others have changed."""
    known = None
    for entry in entries:
        if entry.kind == "void" and entry.reason != NEVER_RECORDED:
            known = entry.reason
        elif entry.kind == "reseed" and entry.from_us is None:
            known = None
    return known


def _replace(lake: Lake, stream: str, made: Rebuilt) -> None:
    # Numbered after all that there were, so that a kill between leaves the later ones to count.
    above = max((entry.number for entry in made.recorded), default=0)
    add_entries(lake, [replace(entry, number=above + entry.number) for entry in made.proved])
    if above and lake.is_delta_table(lake.ops(LEDGER)):
        old = f"stream = '{stream}' AND number <= {above}"
        despite_others(lambda: delta_table(lake.ops(LEDGER)).delete(old))


def _facts(segments: Sequence[Segment]) -> list[str]:
    return [
        f"from {instant_text(s.from_us)} until {instant_text(s.until_us)} UTC: {s.entry.kind} of "
        f"generation {s.entry.generation}, bronze up to version {s.entry.bronze_version}, code "
        f"{', '.join(s.entry.codes)}"
        for s in segments
    ]
