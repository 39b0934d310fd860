"""What a live generation adds to the ledger: how far its checkpoint says that it has come.

The rows of a batch are in the table before its checkpoint commits it, so what the checkpoint has
settled is in the table. One entry a generation, as long as its code is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from include.checkpoint.offsets import newest_committed, newest_planned
from include.checkpoint.position import is_settled, read_position, settled_watermark_ms
from include.coverage.entries import Entry
from include.coverage.judge import newest_own
from include.coverage.trust import bronze_commit
from include.fold.instants import US_PER_MS, micros_of
from include.lake.generations import GenerationRow, is_reseeded
from include.lake.paths import Lake, LakeError
from include.savepoints.lineage import serving

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
    return Progress(batch_id, until_us, position.version - 1, position.table_id)


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
        return _entry(row, None, None, run_id, codes)
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
    return _entry(row, from_us, own.until_us, run_id, codes)


def changed_unseen(row: GenerationRow, own: Entry) -> Entry | None:
    """The entry after a change of code that no commit of the table has told of; None without one.

    A batch of other code may emit nothing, and be in the state all the same.
    """
    if row["code_changed_at"] is None or own.generation != row["generation"]:
        return None
    if own.kind == "void" or not set(own.codes) <= serving(row["code"] or CHANGED):
        return None
    from_us = own.from_us if row["output_mode"] == "update" else own.until_us
    return _entry(row, from_us, own.until_us, None, (*own.codes, CHANGED))


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
