"""The ledger brought in step with what happened: with the table's log, and with the checkpoint.

Under the stream's lease, before a job writes and when it has ended. What a killed job committed
and did not enter is entered; a table that is not what the ledger says is an error, or, for a
reseed, which makes it anew, no longer counted on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from include.checkpoint.offsets import newest_committed
from include.coverage.entries import Entry, add_entries, change_entry, read_entries
from include.coverage.judge import newest_own
from include.coverage.live import (
    CHANGED,
    UNPROVED_US,
    begun_by,
    changed_unseen,
    commit_read,
    extended,
    progress_of,
)
from include.coverage.marks import is_marked, marks_since, oldest_commit
from include.coverage.segments import is_by_other_code
from include.coverage.trust import (
    as_of_now,
    entered_version,
    other_generation,
    why_not_trusted,
)
from include.lake.generations import GenerationRow, Generations
from include.lake.how_to_mend import how_to_trust_again
from include.lake.paths import Lake, LakeError
from include.lake.rejected_calls import ours
from include.lake.table_seal import read_seal, seal, seal_gone, seal_ours

NEVER_RECORDED = "the ledger was lost"


class CoverageError(LakeError):
    """A stream's table is not what was recorded of it."""

    code = "changed_by_others"


@dataclass(frozen=True)
class Look:
    """The ledger as it would be in step; nothing has been written."""

    entries: tuple[Entry, ...]
    added: tuple[Entry, ...] = ()  # of these, what `ops/coverage` does not have yet
    changed: tuple[Entry, ...] = ()  # ... and has otherwise
    distrust: str | None = None  # why the table cannot be counted on; its entries are void then

    def with_added(self, entry: Entry) -> "Look":
        entry = _numbered(self.entries, entry)
        return replace(self, entries=(*self.entries, entry), added=(*self.added, entry))

    def with_changed(self, entry: Entry) -> "Look":
        entries = tuple(entry if e.number == entry.number else e for e in self.entries)
        if any(entry.number == known.number for known in self.added):
            added = tuple(entry if e.number == entry.number else e for e in self.added)
            return replace(self, entries=entries, added=added)
        changed = (*(e for e in self.changed if e.number != entry.number), entry)
        return replace(self, entries=entries, changed=changed)


def look(lake: Lake, generations: Generations) -> Look:
    """The ledger of a stream and its table, compared. Reads only."""
    stream = generations.stream
    known = Look(tuple(read_entries(lake, stream)))
    distrust = why_not_trusted(lake, generations, known.entries)
    if distrust is None:
        known = _with_unrecorded(lake, generations, _with_marks(lake, generations, known))
        distrust = other_generation(lake, generations, known.entries)
    if distrust is not None:
        void = _void(lake, stream, distrust)
        known = replace(known.with_added(void), distrust=distrust)
    return _extended(lake, generations, known)


def rebuilt_look(lake: Lake, generations: Generations) -> Look:
    """The ledger as if nothing of it were recorded: by the marks in the table's log alone."""
    return _extended(lake, generations, _with_marks(lake, generations, Look(())))


def reconcile(lake: Lake, generations: Generations) -> list[Entry]:
    """The ledger of a stream, in step, and written so. Under the stream's lease.

    Raises CoverageError, and writes nothing, when the table is not what the ledger says.
    """
    seen = look(lake, generations)
    if seen.distrust is not None:
        raise distrust_error(lake, generations.stream, seen.distrust)
    write_look(lake, generations.stream, seen)
    return list(seen.entries)


def distrust_error(lake: Lake, stream: str, reason: str) -> CoverageError:
    """The error of who would build on the table of `stream`."""
    mend = how_to_trust_again(stream)
    return CoverageError(
        f"{lake.table(stream)} is not what was recorded of it: {reason}. Nothing was changed. To mend "
        f"it: {mend.words}",
        subject=f"tables/{stream}",
        command=mend.command,
    )


def write_look(lake: Lake, stream: str, seen: Look) -> None:
    """Enter what was seen, also that a table is not to be counted on any more.

    That only by who is about to make the table anew: from here on it counts as what it is.
    """
    if seen.added:
        add_entries(lake, seen.added)
    for entry in seen.changed:
        change_entry(lake, entry)
    rejected = f"rejected/{stream}"
    if seen.distrust is None:
        # Not what others have written since `look`: the next one is to find it.
        seal_ours(lake, _table(stream), is_marked)
        seal_ours(lake, rejected, ours(stream))
        return
    if lake.is_delta_table(lake.table(stream)):
        seal(lake, _table(stream))
    if lake.is_delta_table(lake.rejected(stream)):
        seal(lake, rejected)
    else:
        seal_gone(lake, rejected)


def seal_made(lake: Lake, stream: str) -> None:
    """Seal a table that was just made where one had been, of which nothing was to be kept."""
    if read_seal(lake, _table(stream)) is not None:
        seal(lake, _table(stream))


def _table(stream: str) -> str:
    return f"tables/{stream}"


def _with_unrecorded(lake: Lake, generations: Generations, known: Look) -> Look:
    """With a word on a stream that has run and never wrote a row: of that, no commit tells.

    A run begins its entry before its first batch.
    """
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    if known.entries or newest_committed(lake, checkpoint) is None:
        return known
    return known.with_added(_void(lake, generations.stream, NEVER_RECORDED))


def _with_marks(lake: Lake, generations: Generations, known: Look) -> Look:
    """With what commits of the table say that the ledger has not entered."""
    stream, row = generations.stream, generations.current
    path = lake.table(stream)
    if not lake.is_delta_table(path):
        return known
    entered = entered_version(known.entries)
    is_whole = not _lacks_commits(lake, stream, known.entries, entered)
    if not is_whole:
        known, entered = known.with_added(_void(lake, stream, NEVER_RECORDED)), -1
    for mark in marks_since(lake, path, entered):
        known = _with_mark(lake, stream, known, mark if is_whole else _as_far(row, mark))
    return known


def _lacks_commits(lake: Lake, stream: str, entries: Sequence[Entry], entered: int) -> bool:
    """Whether the log no longer has, or has from others, what the ledger has yet to enter."""
    path = lake.table(stream)
    if not entries:
        return oldest_commit(lake, path) > 0 or not all(marks_since(lake, path, -1))
    sealed = read_seal(lake, _table(stream))
    # Rows as old as the ledger say that nothing of ours came since.
    changed = sealed and (sealed["changed_version"] or sealed["version"])
    return bool(changed and changed > entered and oldest_commit(lake, path) > entered + 1)


def _as_far(row: GenerationRow | None, mark: Entry | None) -> Entry | None:
    """What a mark of live proves where commits before it are gone: others may have overridden
    a part of what live had made."""
    if mark is None or mark.kind != "live" or row is None or row["output_mode"] == "update":
        return mark
    return replace(mark, from_us=UNPROVED_US if mark.until_us is None else mark.until_us)


def _with_mark(lake: Lake, stream: str, known: Look, mark: Entry | None) -> Look:
    if mark is None:
        if known.entries and known.entries[-1].kind == "void":
            return known  # one says it for all of them
        return known.with_added(_void(lake, stream, NEVER_RECORDED))
    same = [entry for entry in known.entries if _same_writing(entry, mark)]
    if same and mark.kind == "live" and (mark.until_us or 0) > (same[-1].until_us or 0):
        return known.with_changed(replace(same[-1], until_us=mark.until_us))
    if same:
        return known
    return known.with_added(as_of_now(lake, mark))


def _same_writing(entry: Entry, mark: Entry) -> bool:
    if entry.kind == mark.kind == "live":
        return (entry.generation, entry.codes) == (mark.generation, mark.codes)
    one, other = ((each.kind, each.run_id, each.generation) for each in (entry, mark))
    return one == other


def _void(lake: Lake, stream: str, reason: str) -> Entry:
    void = Entry(
        stream=stream,
        kind="void",
        from_us=None,
        until_us=None,
        generation=0,
        run_id=None,
        delay_us=0,
        codes=(),
        bronze_id=None,
        reason=reason,
    )
    return as_of_now(lake, void)


def _extended(lake: Lake, generations: Generations, known: Look) -> Look:
    """With what live has settled by now, as the checkpoint of its generation says."""
    row = generations.current
    try:
        progress = None if row is None else progress_of(lake, row)
    except LakeError:
        return known  # a damaged checkpoint adds nothing; the next run and the check name it
    own = newest_own(known.entries)
    if row is None or progress is None or own is None or own.generation > row["generation"]:
        return known  # (the last: rows of a reseed are in the table that has not been switched to)
    code = own.codes[-1] if own.kind == "live" else None
    begun = changed_unseen(row, own) or begun_by(row, known.entries, None, code)
    commit = commit_read(lake, row, known.entries, progress)
    reached = extended(row, begun, progress, commit)
    if reached == begun and begun.number:
        return known
    reached = as_of_now(lake, reached)
    return known.with_changed(reached) if begun.number else known.with_added(reached)


def enter(lake: Lake, entry: Entry) -> None:
    """Add what a job has just made of its stream's table. Under the stream's lease."""
    add_entries(lake, [_numbered(read_entries(lake, entry.stream), as_of_now(lake, entry))])


def doubt_until_entered(lake: Lake, entries: Sequence[Entry], coming: Entry) -> None:
    """Enter, if other code than that of `coming` has written in its place, that nothing proves what
    is there now. Before the first write: should no other one follow, and that code be put back, the
    table would count as right beside rejected rows that are not its own.
    """
    if is_by_other_code(entries, coming):
        enter(lake, replace(coming, run_id=None, codes=(*coming.codes, CHANGED)))


def _numbered(entries: Sequence[Entry], entry: Entry) -> Entry:
    return replace(entry, number=1 + max((known.number for known in entries), default=0))


def begin_live(lake: Lake, row: GenerationRow, code: str, run_id: str) -> Entry:
    """The entry of live that a run by `code` is about to add to, written before its first row."""
    entries = read_entries(lake, row["stream"])
    entry = begun_by(row, entries, run_id, code)
    if entry.number:
        return entry
    entry = _numbered(entries, entry)
    add_entries(lake, [entry])
    return entry
