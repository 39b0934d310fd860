"""Whether a stream's table, its checkpoint, its bronze and its dead letters are of one time.

Somebody may put back any part of a lake: none must be an older copy. The newest record in the table's log
is compared with each of the others before a job builds on it. Reads only.
"""

from include.checkpoint.checkpoint_files import newest_committed, newest_planned, plan_hash
from include.checkpoint.committed_batch import is_settled, read_position
from include.coverage.record import Entry, StreamRecord, recorded
from include.lake.delta_log import commit_hash, open_table
from include.lake.generations import GenerationRow, Generations, is_reseeded
from include.lake.how_to_mend import how_to_trust_again
from include.lake.paths import Lake, LakeError
from include.lake.stream_result import dead_letters_number


def refuse_other_checkpoint(lake: Lake, generations: Generations, record: StreamRecord) -> None:
    """LakeError when no batch may follow on a stream's checkpoint, though its table holds.

    Under a missing or older one batches get numbers that the table takes for written; one of another life
    has other states; and a stream that has read more than bronze has would pass over what comes in its place.
    """
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    batch_id, row = record.batch_of(generations.number), generations.current
    if batch_id is not None and plan_hash(lake, checkpoint, batch_id) != record.plan:
        raise of_other_times(
            generations.stream, f"{checkpoint} does not have batch {batch_id} that the table has"
        )
    if row is None:
        return
    is_settled(lake, checkpoint)  # LakeError where the newest batch does not say
    planned = newest_planned(lake, checkpoint)
    if planned is not None:
        position = read_position(lake, f"{checkpoint}/offsets/{planned}")
        table_id, version = position.table_id, position.version - 1
    elif is_reseeded(row):
        table_id, version = row["bronze_id"], row["bronze_version"]
    else:
        return
    newest = _newest_version(lake, lake.bronze(row["source"]), table_id)
    if newest is None or newest < version:
        said = f"{lake.bronze(row['source'])} lacks version {version}, which was read"
        raise of_other_times(generations.stream, said)


def of_other_times(stream: str, reason: str) -> LakeError:
    """The error of who would build on the table of `stream`."""
    mend = how_to_trust_again(stream)
    return LakeError(
        f"what {stream} is made of is of different times, or others have changed it: {reason}. Nothing was "
        f"done. To mend it: {mend.words}",
        code="of_other_times",
        subject=stream,
        command=mend.command,
    )


def why_not_trusted(lake: Lake, generations: Generations) -> str | None:
    """Why the newest record of a stream's table does not hold; None: it does."""
    if generations.mismatch is not None:
        return generations.mismatch
    try:
        dead_letters = dead_letters_number(lake, generations.stream)
    except LakeError as error:
        return error.message
    record = recorded(generations)
    own, row = record.own, generations.current
    checkpoint = lake.checkpoint(generations.stream, generations.number)
    committed = newest_committed(lake, checkpoint)
    if own is None:
        return None if committed is None else "the table has no record, and its stream has run"
    if (generations.newest_folder or 0) > generations.number:
        return f"the table has no generation {generations.newest_folder}, which has a checkpoint"
    if _lacks_batch(record.batch_of(generations.number), committed):
        return f"the table does not have batch {committed}, which its checkpoint has committed"
    if row is not None and _has_other_bronze(lake, row, record, own):
        return f"{lake.bronze(row['source'])} does not have the version that was read"
    if dead_letters < record.dead_letters:  # they are written before the rows
        return f"{lake.dead_letters(record.stream)} lacks commits that the table's rows go with"
    return None


def _lacks_batch(written: int | None, committed: int | None) -> bool:
    """Each batch is in the table's log before its checkpoint commits it."""
    return committed is not None and (written is None or written < committed)


def _has_other_bronze(lake: Lake, row: GenerationRow, record: StreamRecord, own: Entry) -> bool:
    """Whether what was read is no more in bronze: that is another table, shorter, or has another commit
    in its place."""
    if own.bronze_id is None:
        return False
    bronze = lake.bronze(row["source"])
    newest = _newest_version(lake, bronze, own.bronze_id)
    if newest is None:
        return True
    read = [
        (entry.read_version, entry.read_commit)
        for entry in record.entries
        if entry.bronze_id == own.bronze_id and entry.read_version is not None
    ]
    version, commit = max(read, default=(0, None))
    found = commit_hash(lake, bronze, version)
    # The clean-up of its log may have taken it.
    return newest < version or (None not in (found, commit) and found != commit)


def _newest_version(lake: Lake, path: str, table_id: str | None) -> int | None:
    """Of a table, where it is the one of this id; LakeError when it cannot be read."""
    table = open_table(path) if lake.is_delta_table(path) else None
    return None if table is None or str(table.metadata().id) != table_id else int(table.version())


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
