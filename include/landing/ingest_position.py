"""How far ingestion has come in a source's landing folder: the table `ingested_files/<source>`.

A batch begins with a commit of its plan: its files, and the time by which their rows are judged.
Then its rows go to bronze and to quarantine, a commit each, and a last row here says that the batch
is done. A run that dies anywhere leaves a plan without that row; the next one repeats the batch,
with the same files and the same time, and both tables know whether they have it.

The rows are the position: nothing of it is in a commit's info, which goes when a log is cleaned.
A lake of release 0.5 has it in a checkpoint of Spark (spark_position.py), which the first run
takes over, numbers and all: so whatever 0.5 has begun, this repeats as the same batch.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.instants import instant_of, micros_of
from include.lake.columns import Column, create_if_absent, documented, without_comments
from include.lake.commits import is_written, transaction, write_once
from include.lake.delta_log import first_line, is_of_machine, open_table
from include.lake.how_to_mend import how_to_mend
from include.lake.open_delta import delta_table
from include.lake.ops import compact_now_and_then, despite_others, with_all_columns
from include.lake.paths import Lake, LakeError, files_of
from include.landing import spark_position
from include.landing.arrivals import Arrivals
from include.landing.batch import GIVEN_UP, Batch, Part, Position, marks_among
from include.landing.landed_files import landed_files
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
# Of a source with unique_files, from the first batch on that it has been planned with.
CONTENT_COLUMNS = (
    Column("content_hash", "string", "Of a source with unique_files: SHA-256 of its bytes"),
    Column("copy_of", "string", "The file whose content it is a copy of: it gave no rows"),
)
CONTENT_FIELDS = list(without_comments(documented(CONTENT_COLUMNS)))


def read_position(lake: Lake, source: str) -> Position | None:
    """Where ingestion stands; None where nothing was ever planned. LakeError for a damaged table."""
    path = lake.ingested_files(source)
    if lake.is_delta_table(path):
        return _position_of(path, open_table(path))
    return _of_checkpoint(lake, source)


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


def ensure_position(lake: Lake, source: str, lost: frozenset[str] = frozenset()) -> None:
    """Make the table of landed files: empty, or with what a checkpoint of 0.5 has.

    `lost`: files that the tables have, though that checkpoint has lost them. LakeError when the
    checkpoint belongs to another landing folder.
    """
    path = lake.ingested_files(source)
    position = _of_checkpoint(lake, source)
    if position is None:
        create_if_absent(path, COLUMNS, COMMENT, {}, name=uuid4().hex)
        return
    rows = _rows_of(position, lost).cast(documented(COLUMNS))
    write_deltalake(path, rows, description=COMMENT, name=position.id)


def next_batch(lake: Lake, source: Source, arrived: Arrivals, now: datetime) -> Batch | None:
    """The batch that was begun and not finished, or else one of what no batch has taken; if any.

    It is committed before it is returned; of two runs that plan at once one takes the other's.
    """
    path = lake.ingested_files(source.name)

    def plan() -> Batch | None:
        table = open_table(path)
        position = _position_of(path, table)
        if position.open is not None:
            return position.open
        cut = arrived.cut(source, position)
        if not cut.files and not cut.copies:
            return None
        at_us = micros_of(now) // 1000 * 1000
        batch = Batch(position.id, position.newest + 1, cut.files, at_us, *cut[1:])
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
    written_to = delta_table(f"{lake.root}/{table}/{source}")
    return is_written(written_to, app_id(source, table, batch.position_id), batch.number)


def app_prefix(source: str) -> str:
    """With what the names of all writes of the source's batches begin."""
    return f"ingest/{source}/"


def _id_of(path: str, table: DeltaTable) -> str:
    """The name of the table: of the sequence of its batches in bronze and in quarantine."""
    name = table.metadata().name
    if name is None:
        raise LakeError(f"{path} has no name, so it is not ours: {how_to_mend(path)}")
    return str(name)


def _position_of(path: str, table: DeltaTable) -> Position:
    rows = _read(path, table)
    position_id = _id_of(path, table)
    newest, done = _most(rows), _most(rows.filter(pc.is_null(rows["source_file"])))
    named = rows.filter(pc.is_valid(rows["source_file"]))
    is_done = pc.less_equal(named["batch"], done)
    taken = named.filter(is_done)
    return Position(
        id=position_id,
        newest=newest,
        taken=frozenset(taken["source_file"].to_pylist()),
        parts=_parts_of(taken),
        contents=_contents_of(named),
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
    more = [f for f in (ORIGIN_FIELD, *CONTENT_FIELDS) if f.name in files.schema.names]
    schema = pa.schema([*SCHEMA, *more])
    try:
        return files.to_table(columns=schema.names).cast(schema)
    except (OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            raise
        raise LakeError(
            f"the rows of {path} cannot be read ({first_line(error)}): {how_to_mend(path)}"
        ) from error


def _parts_of(taken: pa.Table) -> tuple[Part, ...]:
    if ORIGIN_ID.name not in taken.column_names:
        return ()
    names = ("batch", "source_file", ORIGIN_ID.name)
    return tuple(sorted(map(Part, *(taken[name].to_pylist() for name in names))))


def _contents_of(planned: pa.Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    # One that was mended is there twice: as it was last is what it gave. 0.5 has noted no time.
    nulls_first = [("", "ascending", "at_start")]  # a column by itself has no name to sort by
    by_time = pc.sort_indices(planned["ingested_at"], sort_keys=nulls_first)
    for name, (content, copy_of) in dict(_contents(planned.take(by_time))).items():
        if content is not None and copy_of is None:
            found[content] = (*found.get(content, ()), name)
    return found


def _contents(rows: pa.Table) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    """Of files what they have, and what they are a copy of."""
    if {field.name for field in CONTENT_FIELDS} <= {*rows.column_names}:
        known = (rows[field.name].to_pylist() for field in CONTENT_FIELDS)
        yield from zip(rows["source_file"].to_pylist(), zip(*known, strict=True), strict=True)


def _most(rows: pa.Table) -> int:
    most = pc.max(rows["batch"]).as_py()
    return -1 if most is None else int(most)


def _open_batch(position_id: str, number: int, rows: pa.Table) -> Batch:
    ingested_at_us = micros_of(pc.max(rows["ingested_at"]).as_py())
    contents = dict(_contents(rows))
    hashes = {name: content for name, (content, _) in contents.items() if content is not None}
    copies = {name: copy_of for name, (_, copy_of) in contents.items() if copy_of is not None}
    names = {*rows["source_file"].to_pylist()} - copies.keys()
    files = tuple(sorted(name for name in names if not name.startswith(GIVEN_UP)))
    has_origin = ORIGIN_ID.name in rows.column_names
    origin_id = rows[ORIGIN_ID.name][0].as_py() if has_origin else None
    about = (ingested_at_us, origin_id, hashes, copies, marks_among(names))
    return Batch(position_id, number, files, *about)


def plan_rows(batch: Batch) -> pa.Table:
    """The rows that begin a batch."""
    files, at = [*batch.files, *batch.copies], instant_of(batch.ingested_at_us)
    rows = _rows([batch.number] * len(files), files, [at] * len(files))
    if batch.hashes:
        for field, known in zip(CONTENT_FIELDS, (batch.hashes, batch.copies), strict=True):
            rows = rows.append_column(field, pa.array(map(known.get, files), field.type))
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


# What release 0.5 has left


def _of_checkpoint(lake: Lake, source: str) -> Position | None:
    """What a checkpoint of release 0.5 says; None without one."""
    position_id = spark_position.read_query_id(lake, source)
    if position_id is None:
        return None
    newest = spark_position.newest_batch(lake, source)
    done = spark_position.newest_committed_batch(lake, source)
    taken = frozenset(spark_position.files_until(lake, source, done))
    if newest == done:
        return Position(position_id, newest, taken, None)
    begun = spark_position.read_planned_batch(lake, source, newest)
    return Position(position_id, newest, taken, Batch(position_id, newest, *begun))


def _rows_of(position: Position, lost: frozenset[str]) -> pa.Table:
    """The rows that say the same, with `lost` among the files that were taken."""
    taken = sorted(position.taken | lost)
    begun = position.open and replace(position.open, files=tuple(sorted(position.planned - lost)))
    # With no file left of it the batch is done: its number is not given again.
    done = position.newest - 1 if begun and begun.files else position.newest
    parts = [_rows([done] * len(taken), taken), _rows([done], [None])]
    if begun and begun.files:
        parts.append(plan_rows(begun))
    return pa.concat_tables(parts)
