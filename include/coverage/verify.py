"""Whether a stream's table, its checkpoint, its bronze and its rejected calls are of one time.

Somebody may put back any part of a lake: none must be an older copy. The newest record in the table's log
is compared with each of the others before a job builds on it; that the checkpoint has the batch of the record,
and nothing older, `pin_generation.py` sees to. Reads only.
"""

from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from include.checkpoint.checkpoint_files import newest_committed, newest_planned
from include.checkpoint.committed_batch import is_settled
from include.coverage.record import Entry, StreamRecord, read_record
from include.lake.delta_log import commit_hash, is_of_machine, table_to_read
from include.lake.generations import GenerationRow, Generations
from include.lake.how_to_mend import how_to_trust_again
from include.lake.paths import Lake, LakeError
from include.lake.stream_result import rejected_number


class CoverageError(LakeError):
    """A stream's table is not what was recorded of it."""

    code = "changed_by_others"


@dataclass(frozen=True)
class Look:
    """A stream's newest record, compared with what it counts on."""

    record: StreamRecord  # without entries where the table cannot be counted on
    distrust: str | None = None  # why it cannot

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.record.entries


def look(lake: Lake, generations: Generations) -> Look:
    """The record of a stream, or why it does not hold."""
    try:
        record = read_record(lake, generations.stream)
        reason = why_not_trusted(lake, generations, record)
    except LakeError as error:
        reason = error.message
    if reason is not None:
        return Look(StreamRecord(stream=generations.stream), reason)
    return Look(record)


def trusted_record(lake: Lake, generations: Generations) -> StreamRecord:
    """The record of a stream; CoverageError when it does not hold."""
    seen = look(lake, generations)
    if seen.distrust is not None:
        raise distrust_error(lake, generations.stream, seen.distrust)
    return seen.record


def distrust_error(lake: Lake, stream: str, reason: str) -> CoverageError:
    """The error of who would build on the table of `stream`."""
    mend = how_to_trust_again(stream)
    return CoverageError(
        f"{lake.table(stream)} is not what was recorded of it: {reason}. Nothing was changed. To mend "
        f"it: {mend.words}",
        subject=f"tables/{stream}",
        command=mend.command,
    )


def why_not_trusted(lake: Lake, generations: Generations, record: StreamRecord) -> str | None:
    """Why the record that a stream's table has does not hold; None when it does."""
    own, row = record.own, generations.current
    committed = newest_committed(lake, lake.checkpoint(generations.stream, generations.number))
    if own is None:
        return _lost(lake, generations, committed)
    return (
        _older_generation(generations)
        or _older_than_checkpoint(record, generations.number, committed)
        or (row and _read_other_bronze(lake, row, own))
        or _older_rejected(lake, record)
        or None
    )


def _lost(lake: Lake, generations: Generations, committed: int | None) -> str | None:
    """A stream without a record is one that has not run."""
    if committed is None:
        return None
    if lake.is_delta_table(lake.table(generations.stream)):
        return "no commit of its log is of this stream's, which has run"
    return "it is missing"


def _older_generation(generations: Generations) -> str | None:
    """The commit that makes a generation's table comes before its checkpoint."""
    newest = generations.newest_folder
    if newest is None or newest <= generations.number:
        return None
    return f"it ends with generation {generations.number}, and {newest} has a checkpoint: it is an older copy"


def _older_than_checkpoint(
    record: StreamRecord, generation: int, committed: int | None
) -> str | None:
    """Each batch is in the table's log before its checkpoint commits it."""
    own, written = record.own, record.batch_of(generation)
    if own is None or own.generation != generation or committed is None:
        return None
    if written is not None and written >= committed:
        return None
    ends = "has none of them" if written is None else f"ends at batch {written}"
    return (
        f"its checkpoint has committed batch {committed}, and it {ends}: it is an older copy, or lost "
        "its newest commit"
    )


def _read_other_bronze(lake: Lake, row: GenerationRow, own: Entry) -> str | None:
    """Whether what was read is no more in bronze: that is shorter, or in its place there is
    another commit."""
    if own.read_version is None or own.read_commit is None:
        return None
    bronze = lake.bronze(row["source"])
    found = commit_hash(lake, bronze, own.read_version)
    if found == own.read_commit:
        return None
    newest = _newest_version(lake, bronze, own.bronze_id)
    if newest is None:
        return None  # another table has not been read at all, as the next run says
    if newest < own.read_version:
        return (
            f"{bronze} is at version {newest}, and version {own.read_version} of it was read: it is an "
            "older copy. The one that has that version mends it; else the reseed alone does"
        )
    if found is None:
        return None  # the clean-up of its log has taken it
    return (
        f"version {own.read_version} of {bronze} is another commit than the one that was read: rows "
        "that are in the state never landed, or some that landed are not in it. Where that commit was "
        "ours, a copy of bronze that has it mends it; else the reseed alone does"
    )


def bronze_commit(lake: Lake, source: str, bronze_id: str | None, version: int) -> str | None:
    """Which commit a version of bronze is; None where it is not the table of this id, or cannot be read."""
    path = lake.bronze(source)
    is_same = _newest_version(lake, path, bronze_id) is not None
    return commit_hash(lake, path, version) if is_same else None


def _newest_version(lake: Lake, path: str, table_id: str | None) -> int | None:
    """Of a table, where it is the one of this id and can be read."""
    try:
        table = table_to_read(path) if lake.is_delta_table(path) else None
    except DeltaError as error:
        if is_of_machine(error):
            raise
        return None
    return None if table is None or str(table.metadata().id) != table_id else int(table.version())


def _older_rejected(lake: Lake, record: StreamRecord) -> str | None:
    """Rejected calls are written before the rows of their batch."""
    path, number = lake.rejected(record.stream), rejected_number(lake, record.stream)
    if number >= record.rejected:
        return None
    return f"{path} lacks commits that the rows of the table go with: it is an older copy, or lost"


def was_cut_off(lake: Lake, row: GenerationRow, record: StreamRecord) -> bool:
    """Whether the newest run ended before it had settled all that it had written.

    So it may have when its checkpoint is damaged: a run says how, and a reseed does without it.
    """
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    committed = newest_committed(lake, checkpoint)
    if committed != newest_planned(lake, checkpoint):
        return True
    if record.batch_of(row["generation"]) not in (committed, None):
        return True
    try:
        return not is_settled(lake, checkpoint)
    except LakeError:
        return True
