"""The ledger made anew from the marks in the table's own log; a reseed that cannot be finished, given up.

For when `ops/coverage` was lost, or somebody doubts it. What the log no longer has, or has from
somebody else, is proved by nothing: it is not recorded then, which is not right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from include.coverage.entries import LEDGER, Entry, Segment, add_entries, read_entries, segments_of
from include.coverage.findings import instant_text
from include.coverage.ledger import NEVER_RECORDED, Look, distrust_error, look, rebuilt_look
from include.coverage.marks import is_marked
from include.lake.delta_log import delta_table
from include.lake.generations import Generations, read_generations
from include.lake.lease import hold_lease
from include.lake.ops import despite_others, update_ops
from include.lake.paths import Lake
from include.lake.table_seal import seal, what_changed
from include.settings import SettingsError, Stream


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


def give_up_reseed(lake: Lake, stream: Stream) -> int:
    """Take the open intent of `stream` back; the generation that will not be.

    SettingsError when there is none, or when its rows are in the table: what they replaced is
    gone, so the generation before cannot go on.
    """
    with hold_lease(lake, f"stream-{stream.name}"):
        generations = read_generations(lake, stream.name)
        if generations.intent is None:
            raise SettingsError(
                f"no reseed of {stream.name} is open: there is nothing to give up",
                code="nothing_there",
                subject=stream.name,
            )
        take_back(lake, generations, look(lake, generations))
        return int(generations.intent["generation"])


def take_back(lake: Lake, generations: Generations, seen: Look) -> None:
    """Take all open intents back, under the stream's lease; SettingsError as `give_up_reseed`."""
    _refuse_replaced(lake, generations, seen)
    # Also those that it has overtaken: the next run would carry them out.
    for row in sorted(generations.intents, key=lambda row: -int(row["generation"])):
        given_up = {"stream": generations.stream, "generation": row["generation"]}
        given_up |= {"deleted_at": datetime.now(UTC)}
        update_ops(lake, "generations", ("stream", "generation"), [given_up])


def can_be_taken_back(generations: Generations, seen: Look) -> bool:
    """Whether no open reseed has replaced rows of a table that is what the ledger says."""
    return seen.distrust is None and _replaced_by(generations, seen) is None


def _replaced_by(generations: Generations, seen: Look) -> int | None:
    """The newest generation with rows in the table that live has not gone on with."""
    replaced = {one.generation for one in seen.entries if one.kind == "reseed"}
    return max((each for each in replaced if each > generations.number), default=None)


def _refuse_replaced(lake: Lake, generations: Generations, seen: Look) -> None:
    """SettingsError when a reseed has replaced rows of the table and live has not gone on with it;
    be it one that another has overtaken. CoverageError when the table cannot tell."""
    stream = generations.stream
    if seen.distrust is not None:
        raise distrust_error(lake, stream, seen.distrust)
    if generation := _replaced_by(generations, seen):
        raise SettingsError(
            f"the rows of the reseed to generation {generation} are in the table of {stream}, so "
            f"the state before cannot go on. Make both anew, by what is in the table now",
            code="unfinished_reseed",
            subject=stream,
            command=f"./stateful reseed {stream} --apply",
        )
