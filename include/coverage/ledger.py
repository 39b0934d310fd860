"""The ledger brought in step with what happened: with the table's log, and with the checkpoint.

Under the stream's lease, before a job writes and when it has ended. What a killed job committed
and did not enter is entered; a table that is not what the ledger says is an error, or, for a
reseed, which makes it anew, no longer counted on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from include.checkpoint.checkpoint_files import newest_committed, newest_planned
from include.checkpoint.committed_batch import is_settled, read_position, settled_watermark_ms
from include.coverage.entries import (
    Entry,
    add_entries,
    change_entry,
    is_by_other_code,
    read_entries,
)
from include.coverage.judge import newest_own
from include.coverage.marks import is_marked, marks_since, oldest_commit
from include.coverage.trust import (
    as_of_now,
    bronze_commit,
    entered_version,
    other_generation,
    why_not_trusted,
)
from include.fold.admission import US_PER_MS, micros_of
from include.lake.generations import GenerationRow, Generations, is_reseeded
from include.lake.how_to_mend import how_to_trust_again
from include.lake.paths import Lake, LakeError
from include.lake.stream_result import ours
from include.lake.table_seal import read_seal, seal, seal_gone, seal_ours
from include.savepoints.manifest import serving

CHANGED = "changed"  # stands for a code that nobody wrote down
# In place of the instant that an entry begins with: nothing before it runs on is recorded.
UNPROVED_US = micros_of(datetime.max.replace(tzinfo=UTC))


@dataclass(frozen=True)
class Progress:
    """How far the checkpoint of a generation has come."""

    batch_id: int
    until_us: int | None  # None: nothing is settled
    version: int  # of bronze that has been read
    bronze_id: str


def progress_of(lake: Lake, row: GenerationRow) -> Progress | None:
    """The committed progress of a generation; None before its first batch."""
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    batch_id = newest_committed(lake, checkpoint)
    if batch_id is None:
        return None
    watermark_ms = settled_watermark_ms(lake, checkpoint)
    until_us = None if watermark_ms is None else watermark_ms * US_PER_MS + 1
    if is_reseeded(row):  # its seed has settled that much, whatever the batch brought
        until_us = max(micros_of(row["until"]), until_us or micros_of(row["until"]))
    position = read_position(lake, f"{checkpoint}/offsets/{batch_id}")
    return Progress(batch_id, until_us, position.version - 1, bronze_id=position.table_id)


def was_cut_off(lake: Lake, row: GenerationRow) -> bool:
    """Whether the newest run ended before it had settled all that it had written.

    So it may have when its checkpoint is damaged: a run says how, and a reseed does without it.
    """
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    if newest_planned(lake, checkpoint) != newest_committed(lake, checkpoint):
        return True
    try:
        return not is_settled(lake, checkpoint)
    except LakeError:
        return True


def commit_read(
    lake: Lake, row: GenerationRow, entries: Sequence[Entry], progress: Progress
) -> str | None:
    """Which commit of bronze the newest is that was read: as it was told first, for numbers come again."""
    read = (row["generation"], progress.bronze_id, progress.version)
    told = (
        entry.read_commit
        for entry in entries
        if (entry.generation, entry.bronze_id, entry.read_version) == read and entry.read_commit
    )
    return next(told, None) or bronze_commit(lake, row, progress.bronze_id, progress.version)


def extended(row: GenerationRow, own: Entry, progress: Progress, commit: str | None) -> Entry:
    """The live entry `own` with what is settled by now; `commit`: of `commit_read`."""
    from_us = own.from_us
    if from_us == UNPROVED_US and row["output_mode"] == "append" and progress.until_us is not None:
        from_us = progress.until_us  # (an update table shows one state: all of it, or nothing)
    return replace(
        own,
        from_us=from_us,
        until_us=progress.until_us,
        read_version=progress.version,
        read_commit=commit,
        batch_id=progress.batch_id,
        bronze_id=progress.bronze_id,
    )


def begun_by(
    row: GenerationRow, entries: Sequence[Entry], run_id: str | None, code: str | None
) -> Entry:
    """The live entry that a run of the generation goes on with, or a new one (its number is 0).

    `code` None: that of the generation's row. A state that another code goes on with is of both.
    """
    codes = _codes(row) if code is None else (code,)
    own = newest_own(entries)
    if own is None:
        return _entry(row, None, None, run_id=run_id, codes=codes)
    if own.generation != row["generation"]:  # as of a table that nobody can count on
        return _entry(row, UNPROVED_US, None, run_id, tuple(dict.fromkeys([*_codes(row), *codes])))
    same_delay = own.delay_us == row["watermark_delay_ms"] * US_PER_MS
    if own.codes[-1:] != codes[-1:]:
        codes = (*own.codes, codes[-1])
    elif own.kind == "live" and same_delay:
        return own
    from_us = own.until_us
    if row["output_mode"] == "update" or own.from_us == UNPROVED_US:
        from_us = own.from_us
    return _entry(row, from_us, own.until_us, run_id=run_id, codes=codes)


def changed_unseen(row: GenerationRow, own: Entry) -> Entry | None:
    """The entry after a change of code that no commit of the table has told of; None without one.

    A batch of other code may emit nothing, and be in the state all the same.
    """
    if row["code_changed_at"] is None or own.generation != row["generation"]:
        return None
    if own.kind == "void" or not set(own.codes) <= serving(row["code"] or CHANGED):
        return None
    from_us = own.from_us if row["output_mode"] == "update" else own.until_us
    return _entry(row, from_us, own.until_us, run_id=None, codes=(*own.codes, CHANGED))


def _codes(row: GenerationRow) -> tuple[str, ...]:
    code = row["code"] or CHANGED
    return (code, CHANGED) if row["code_changed_at"] else (code,)


def _entry(
    row: GenerationRow,
    from_us: int | None,
    until_us: int | None,
    run_id: str | None,
    codes: tuple[str, ...],
) -> Entry:
    reseeded = is_reseeded(row)
    return Entry(
        stream=row["stream"],
        kind="live",
        from_us=from_us,
        until_us=until_us,
        generation=row["generation"],
        run_id=run_id,
        delay_us=row["watermark_delay_ms"] * US_PER_MS,
        codes=codes,
        bronze_id=row["bronze_id"],
        bronze_version=row["bronze_version"] if reseeded else None,
        bronze_ingested_at_us=micros_of(row["bronze_ingested_at"]) if reseeded else None,
    )


NEVER_RECORDED = "the ledger was lost"


class CoverageError(LakeError):
    """A stream's table is not what was recorded of it."""

    code = "changed_by_others"


@dataclass(frozen=True)
class Look:
    """The ledger as it would be in step; nothing has been written."""

    entries: tuple[Entry, ...]
    recorded: tuple[Entry, ...]  # what `ops/coverage` has
    distrust: str | None = None  # why the table cannot be counted on; its entries are void then

    def with_added(self, entry: Entry) -> "Look":
        return replace(self, entries=(*self.entries, _numbered(self.entries, entry)))

    def with_changed(self, entry: Entry) -> "Look":
        entries = tuple(entry if e.number == entry.number else e for e in self.entries)
        return replace(self, entries=entries)


def look(lake: Lake, generations: Generations) -> Look:
    """The ledger of a stream and its table, compared. Reads only."""
    stream = generations.stream
    recorded = tuple(read_entries(lake, stream))
    known = Look(recorded, recorded)
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
    return _extended(lake, generations, _with_marks(lake, generations, Look((), ())))


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
    recorded = {entry.number: entry for entry in seen.recorded}
    if added := [entry for entry in seen.entries if entry.number not in recorded]:
        add_entries(lake, added)
    for entry in seen.entries:
        if recorded.get(entry.number, entry) != entry:
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
    is_whole = not _lacks_commits(lake, stream, known.entries, entered=entered)
    if not is_whole:
        known, entered = known.with_added(_void(lake, stream, NEVER_RECORDED)), -1
    for mark in marks_since(lake, path, entered):
        known = _with_mark(lake, stream, known, mark=mark if is_whole else _as_far(row, mark))
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
    begun = changed_unseen(row, own) or begun_by(row, known.entries, None, code=code)
    commit = commit_read(lake, row, known.entries, progress=progress)
    reached = extended(row, begun, progress, commit=commit)
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
    entry = begun_by(row, entries, run_id, code=code)
    if entry.number:
        return entry
    entry = _numbered(entries, entry)
    add_entries(lake, [entry])
    return entry
