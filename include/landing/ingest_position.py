"""Ingestion's position, `ingested_files/<source>`: the batches taken, the batch begun, and how its rows are read.

A batch begins with a commit of its plan: its files, and the time by which their rows are judged.
Then its rows go to bronze and to quarantine, a commit each, and a last row here says that the batch
is done. A run that dies anywhere leaves a plan without that row; the next one repeats the batch,
with the same files and the same time, and both tables know whether they have it.

The rows are the position: nothing of it is in a commit's info, which goes when a log is cleaned.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.admission import instant_of, micros_of
from include.lake.columns import Column, create_if_absent, documented, without_comments
from include.lake.commits import is_written, transaction, write_once
from include.lake.delta_log import (
    first_line,
    is_of_machine,
    open_table,
    table_to_read,
    table_to_write,
)
from include.lake.errors import settings_changed
from include.lake.how_to_mend import damaged
from include.lake.ops import compact_now_and_then, despite_others, with_all_columns
from include.lake.paths import Lake, files_of
from include.landing.arrivals import Arrivals
from include.landing.batch import GIVEN_UP, Batch, Part, Position, marks_among
from include.landing.landed_content import landed_files
from include.landing.planned_entry import ENTRY, entry_hash
from include.settings import Source

COLUMNS = (
    Column(
        "batch",
        "bigint",
        "A number; all its files go into one commit of bronze, and one of quarantine",
    ),
    Column("source_file", "string", "Below landing/<source>; after /: given up; null: all is done"),
    Column("ingested_at", "timestamp", "When it was planned: by that time its rows are judged"),
    Column("rows_bronze", "bigint", "When it is done: the rows that it gave to bronze"),
    Column("rows_quarantined", "bigint", "When it is done: the rows that it gave to quarantine"),
)
SCHEMA = without_comments(documented(COLUMNS))
COMMENT = "The landed files that ingestion has taken, batch by batch: its position"
# Of a source whose rows come from a topic or a table (include/origins.py).
ORIGIN_ID = Column("origin_id", "string", "The id of the topic or table that it is taken of")
ORIGIN_FIELD = without_comments(documented([ORIGIN_ID])).field(0)


def position_of(path: str, table: DeltaTable) -> Position:
    """What the table at `path` says. LakeError when it is damaged."""
    rows = _read(path, table)
    # The name of the sequence of its batches, in bronze and in quarantine.
    position_id = str(table.metadata().name)
    newest, done = _most(rows), _most(rows.filter(pc.is_null(rows["source_file"])))
    named = rows.filter(pc.is_valid(rows["source_file"]))
    is_done = pc.less_equal(named["batch"], done)
    taken = named.filter(is_done)
    return Position(
        id=position_id,
        newest=newest,
        taken=frozenset(taken["source_file"].to_pylist()),
        parts=_parts_of(taken),
        open=None
        if newest == done
        else _open_batch(position_id, newest, named.filter(pc.invert(is_done))),
        gave={
            name: _most(rows.filter(pc.greater(rows[f"rows_{rows_of}"], 0)))
            for name, rows_of in (("bronze", "bronze"), ("quarantine", "quarantined"))
        },
    )


def _read(path: str, table: DeltaTable) -> pa.Table:
    files = table.to_pyarrow_dataset(filesystem=files_of(path))
    has_origin = ORIGIN_ID.name in files.schema.names
    schema = SCHEMA.append(ORIGIN_FIELD) if has_origin else SCHEMA
    try:
        return files.to_table(columns=schema.names).cast(schema)
    except (OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            raise
        raise damaged(path, f"the rows of {path} cannot be read ({first_line(error)})") from error


def _parts_of(taken: pa.Table) -> tuple[Part, ...]:
    if ORIGIN_ID.name not in taken.column_names:
        return ()
    names = ("batch", "source_file", ORIGIN_ID.name)
    return tuple(sorted(map(Part, *(taken[name].to_pylist() for name in names))))


def _most(rows: pa.Table) -> int:
    most = pc.max(rows["batch"]).as_py()
    return -1 if most is None else int(most)


def _open_batch(position_id: str, number: int, rows: pa.Table) -> Batch:
    ingested_at_us = micros_of(pc.max(rows["ingested_at"]).as_py())
    names = {*rows["source_file"].to_pylist()}
    files = tuple(sorted(name for name in names if not name.startswith(GIVEN_UP)))
    has_origin = ORIGIN_ID.name in rows.column_names
    origin_id = rows[ORIGIN_ID.name][0].as_py() if has_origin else None
    return Batch(
        position_id,
        number,
        files,
        ingested_at_us=ingested_at_us,
        origin_id=origin_id,
        given_up=marks_among(names),
    )


def plan_rows(batch: Batch) -> pa.Table:
    """The rows that begin a batch."""
    files, at = list(batch.files), instant_of(batch.ingested_at_us)
    rows = _rows([batch.number] * len(files), files, [at] * len(files))
    if batch.origin_id is None:
        return rows
    ids = pa.array([batch.origin_id] * len(files), ORIGIN_FIELD.type)
    return rows.append_column(ORIGIN_FIELD, ids)


def done_row(number: int, at_us: int, bronze: int | None, quarantined: int | None) -> pa.Table:
    """The row that ends a batch."""
    return _rows([number], [None], [instant_of(at_us)], [bronze], [quarantined])


def _rows(*columns: list[Any]) -> pa.Table:
    given = [*columns, *([None] * len(columns[0]) for _ in range(len(columns), len(SCHEMA)))]
    arrays = [pa.array(values, field.type) for values, field in zip(given, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


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


def ensure_position(lake: Lake, source: Source) -> None:
    """Make the source's table, without a row."""
    columns = COLUMNS if source.origin is None else (*COLUMNS, ORIGIN_ID)
    create_if_absent(lake.ingested_files(source.name), columns, COMMENT, {}, name=uuid4().hex)


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
        entry = {"userMetadata": json.dumps({ENTRY: entry_hash(source)})}
        commit_next(table, source.name, batch, plan_rows(batch), ("plan",), entry)
        return batch

    return despite_others(plan)


def commit_next(
    table: DeltaTable,
    source: str,
    batch: Batch,
    rows: pa.Table,
    kinds: Sequence[str],
    said: dict[str, str] | None = None,
) -> None:
    """Commit rows of a batch as the version after the one that was read, or not at all: a log has each
    version once. `kinds`: what they say of it. `said`: by the commit."""
    names = (app_id(source, kind, batch.position_id) for kind in kinds)
    once = CommitProperties(
        custom_metadata=said,
        max_commit_retries=0,
        app_transactions=[transaction(name, batch.number) for name in names],
    )
    write_deltalake(table, with_all_columns(rows, table), mode="append", commit_properties=once)


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


def refuse_other_origin(lake: Lake, source: Source) -> None:
    """SettingsError when what was taken for it until now came from elsewhere."""
    path = lake.ingested_files(source.name)
    if not lake.is_delta_table(path):
        return
    names = [field.name for field in open_table(path).schema().fields]
    if (ORIGIN_ID.name in names) != (source.origin is not None):
        raise settings_changed(
            source.name,
            f"source {source.name} has been taken from elsewhere ({path}): where it comes from is "
            "not changed. A source of another name can come from there",
        )


def write_taken(
    lake: Lake, source: str, planned: Sequence[Batch], done: Sequence[tuple[Batch, int, int]]
) -> None:
    """Plan batches, and say that some are done, with their rows in the tables: in one commit."""
    table = table_to_write(lake.ingested_files(source))
    parts = [plan_rows(batch) for batch in planned]
    parts += [done_row(batch.number, batch.ingested_at_us, *rows) for batch, *rows in done]
    rows = pa.concat_tables(parts, promote_options="default")
    commit_next(table, source, planned[-1], rows, ("plan", "done") if done else ("plan",))
