"""The rows of `ingested_files/<source>`: what they say of its batches, and how they are read."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.fold.instants import instant_of, micros_of
from include.lake.columns import Column, documented, without_comments
from include.lake.delta_log import first_line, is_of_machine
from include.lake.how_to_mend import damaged
from include.lake.paths import files_of
from include.landing.batch import GIVEN_UP, Batch, Part, Position, marks_among

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


def _id_of(path: str, table: DeltaTable) -> str:
    """The name of the table: of the sequence of its batches in bronze and in quarantine."""
    name = table.metadata().name
    if name is None:
        raise damaged(path, f"{path} has no name, so it is not ours")
    return str(name)


def position_of(path: str, table: DeltaTable) -> Position:
    """What the table at `path` says. LakeError when it is damaged, or not ours."""
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
    return Batch(position_id, number, files, ingested_at_us, origin_id, marks_among(names))


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
