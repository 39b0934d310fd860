"""How far ingestion has come in a source's landing folder: the table `ingested_files/<source>`.

A batch begins with a commit of its plan: its files, and the time by which their rows are judged.
Then its rows go to bronze and to quarantine, a commit each, and a last row here says that the batch
is done. A run that dies anywhere leaves a plan without that row; the next one repeats the batch,
with the same files and the same time, and both tables know whether they have it.

The rows are the position: nothing of it is in a commit's info, which goes when a log is cleaned.
"""

import json
from datetime import datetime
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.instants import micros_of
from include.lake.columns import create_if_absent
from include.lake.commits import is_written, transaction, write_once
from include.lake.delta_log import open_table, table_to_write
from include.lake.ops import compact_now_and_then, despite_others, with_all_columns
from include.lake.paths import Lake
from include.lake.read_tables import table_to_read
from include.landing.arrivals import Arrivals
from include.landing.batch import Batch, Position
from include.landing.landed_files import landed_files
from include.landing.planned_entry import ENTRY, entry_hash
from include.landing.position_rows import (
    COLUMNS,
    COMMENT,
    done_row,
    plan_rows,
    position_of,
)
from include.settings import Source


def read_position(lake: Lake, source: str) -> Position | None:
    """Where ingestion stands; None where nothing was ever planned. LakeError for a damaged table."""
    path = lake.ingested_files(source)
    if lake.is_delta_table(path):
        return position_of(path, open_table(path))
    return None


def files_waiting(lake: Lake, source: str) -> int:
    """The number of landed files that no finished batch has taken; 0: nothing to ingest.

    Those of a batch that was begun and not finished are still waiting.
    """
    names = {file.name for file in landed_files(lake, source)}
    position = read_position(lake, source)
    return len(names if position is None else (names | position.planned) - position.taken)


def bytes_waiting(lake: Lake, source: str) -> int:
    """The size of the landed files that no finished batch has taken."""
    position = read_position(lake, source)
    taken = frozenset[str]() if position is None else position.taken
    return sum(file.bytes for file in landed_files(lake, source) if file.name not in taken)


def ensure_position(lake: Lake, source: str) -> None:
    """Make the table of landed files, without a row."""
    create_if_absent(lake.ingested_files(source), COLUMNS, COMMENT, {}, name=uuid4().hex)


def next_batch(lake: Lake, source: Source, arrived: Arrivals, now: datetime) -> Batch | None:
    """The batch that was begun and not finished, or else one of what no batch has taken; if any.

    It is committed before it is returned; of two runs that plan at once one takes the other's.
    """
    path = lake.ingested_files(source.name)

    def plan() -> Batch | None:
        table = table_to_write(path)
        position = position_of(path, table)
        if position.open is not None:
            return position.open
        cut = arrived.cut(source, position)
        if not cut.files:
            return None
        at_us = micros_of(now) // 1000 * 1000
        batch = Batch(position.id, position.newest + 1, cut.files, at_us, cut.origin_id)
        _commit_plan(table, source, batch)
        return batch

    return despite_others(plan)


def _commit_plan(table: DeltaTable, source: Source, batch: Batch) -> None:
    # As the version after the one that was read, or not at all: a log has each version once.
    once = CommitProperties(
        custom_metadata={"userMetadata": json.dumps({ENTRY: entry_hash(source)})},
        max_commit_retries=0,
        app_transactions=[
            transaction(app_id(source.name, "plan", batch.position_id), batch.number)
        ],
    )
    rows = with_all_columns(plan_rows(batch), table)
    write_deltalake(table, rows, mode="append", commit_properties=once)


def finish(lake: Lake, source: str, batch: Batch, rows_bronze: int, rows_quarantined: int) -> None:
    """Say that a batch is in bronze and in quarantine, with that many rows."""
    path = lake.ingested_files(source)
    row = done_row(batch.number, batch.ingested_at_us, rows_bronze, rows_quarantined)

    def write(table: DeltaTable, commit: CommitProperties) -> None:
        write_deltalake(
            table, with_all_columns(row, table), mode="append", commit_properties=commit
        )
        compact_now_and_then(table, path)

    write_once(path, app_id(source, "done", batch.position_id), batch.number, write)


def app_id(source: str, table: str, position_id: str) -> str:
    """Names the writes of the position with that id to one table of the source, for `write_once`."""
    return f"{app_prefix(source)}{table}/{position_id}"


def is_batch_in(lake: Lake, source: str, table: str, batch: Batch) -> bool:
    """Whether bronze or quarantine, as `table` says, has what the batch gave it, by its own log."""
    written_to = table_to_read(f"{lake.root}/{table}/{source}")
    return is_written(written_to, app_id(source, table, batch.position_id), batch.number)


def app_prefix(source: str) -> str:
    """With what the names of all writes of the source's batches begin."""
    return f"ingest/{source}/"
