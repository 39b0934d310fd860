"""`bronze/<source>` and `quarantine/<source>`: made with documented columns, and brought after the declared fields."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema

from include.fold.definition import KeyedFold
from include.fold.records import SqlType, sql_type
from include.fold.states import event_schema
from include.ingest.connector import origin_columns, refused_columns
from include.ingest.rescue import read_rescued
from include.lake.columns import (
    APPEND_ONLY,
    Column,
    arrow_type,
    columns_of,
    create_if_absent,
    documented,
    sql_name,
)
from include.lake.delta_log import delta_table, table_to_read
from include.lake.errors import SettingsError, settings_changed
from include.lake.paths import Lake
from include.lake.table import Table
from include.origins import ISO, Times
from include.registry import all_sources
from include.settings import RESCUED, Field, Source

# A stream's position stays at the last commit with rows. Should the log be cut there while its
# source is silent (Delta's default is 30 days), the stream could not go on: before that it reads
# a still row (include/maintain/plan_care.py), and this is the time that it has for it. And
# the newest record of each table is in its log.
KEEPS_LOG = {"delta.logRetentionDuration": "interval 90 days"}
FEATURES = {"delta.enableDeletionVectors": "false", **KEEPS_LOG}
BRONZE_FEATURES = {APPEND_ONLY: "true"}
QUARANTINE_COLUMNS = (
    Column("quarantine_id", "string", "Key: of the file's name and the row's number in it"),
    Column("reason_code", "string", "Why it was refused: a stable word, such as wrong_type"),
    Column("reason", "string", "Why it was refused, for people"),
    Column(
        "raw",
        "string",
        "The row as landed (CSV: after its header; Parquet: as JSON); null for a whole file",
    ),
    Column("source_file", "string", "The file it landed in, below landing/<source>"),
    Column("row_number", "bigint", "Its number in the file, from 1; 0 for a whole file"),
    Column("ingested_at", "timestamp", "When ingestion refused it"),
    Column("resolved_at", "timestamp", "When it was taken in after all; null while open"),
    Column("correction", "string", "The last corrected text given to re-ingestion; null if none"),
)


def create_tables(lake: Lake, source: Source) -> None:
    """Make bronze and quarantine of the source, where they are not there yet."""
    create_if_absent(
        lake.bronze(source.name),
        bronze_columns(source),
        f"{source.comment}: the events as they were ingested, append-only",
        FEATURES | BRONZE_FEATURES,
        partition_by=["event_date"],
    )
    create_if_absent(
        lake.quarantine(source.name),
        quarantine_columns(source),
        f"{source.comment}: the landed rows and files that are no events",
        FEATURES,
    )


def quarantine_columns(source: Source) -> tuple[Column, ...]:
    """The columns of quarantine: those of all sources, then what is known of a message."""
    return (*QUARANTINE_COLUMNS, *refused_columns(source))


def bronze_columns(source: Source) -> tuple[Column, ...]:
    """The columns of bronze: the source's fields, then what ingestion adds.

    Raises SettingsError when a field has the name of a column that ingestion adds.
    """
    refuse_taken(source)
    fields = (_column(field, _declared_landed(source, field)) for field in source.fields)
    return (*fields, *added_columns(source))


def refuse_taken(source: Source) -> None:
    """SettingsError when a field has the name of a column that ingestion adds, in whatever case."""
    added = {column.name for column in added_columns(source)}
    for field in source.fields:
        if field.name.lower() in added:
            raise SettingsError(
                f"source {source.name}: bronze itself has a column {field.name.lower()}: call the field "
                f"{field.name} something else, with path={field.landed!r}",
                subject=field.name,
            )


def added_columns(source: Source) -> tuple[Column, ...]:
    """What ingestion adds to the fields."""
    reached = "The newest least(event_time, ingested_at) of all earlier commits"
    if source.watermark_per is not None:
        reached += ", the least of those of the groups that were not idle, and never going back"
    return (
        Column("event_time", "timestamp", f"When it happened: the landed {source.time_field}"),
        Column("event_date", "date", "The UTC date of event_time"),
        Column(
            "ingested_at", "timestamp", "When ingestion took it in: later than in earlier commits"
        ),
        Column("arrival_watermark", "timestamp", f"{reached}; null in the first"),
        Column(
            "commit_watermark", "timestamp", "arrival_watermark with this commit's rows as well"
        ),
        Column(
            "source_file",
            "string",
            "The file it landed in, below landing/<source>; #<quarantine_id> if re-ingested",
        ),
        Column("is_clock", "boolean", "No event: only moves the watermark", nullable=False),
        *origin_columns(source),
        Column(RESCUED, "string", "JSON: values of the row that are no fields, by name, as landed"),
    )


# In a column's metadata: the path at which its values land, and how times are written there (`Times`,
# as JSON); the column that older rows have its values in; and, of one that was not declared
# all the time, whether it is.
PATH, TIMES, WAS = "stateful.path", "stateful.times", "stateful.was"
LATE, DECLARED, DROPPED = "stateful.late", "declared", "dropped"


class FoundField(NamedTuple):
    """A column of bronze: its SQL type, and what its metadata says."""

    type: str
    metadata: dict[str, str]


class Landed(NamedTuple):
    """How values of a field land."""

    path: str
    times: Times = ISO


class LateField(NamedTuple):
    """A column that older rows have elsewhere: in another, or in what was rescued of them."""

    name: str
    type: str
    landed: Landed  # as it was rescued
    was: "LateField | None" = None

    def columns(self) -> set[str]:
        """All that its values are read from."""
        return {self.name, RESCUED} | (self.was.columns() if self.was is not None else set())

    def times(self) -> set[Times]:
        """All ways in which times are written that are read."""
        return {self.landed.times} | (self.was.times() if self.was is not None else set())


def found_fields(table: DeltaTable) -> dict[str, FoundField]:
    """The columns of bronze, by name."""
    schema = table.schema()
    types = dict(columns_of(pa.schema(schema.to_arrow())))
    return {
        field.name: FoundField(sql_name(types[field.name]), dict(field.metadata))
        for field in schema.fields
    }


def late_fields(table: DeltaTable, names: Collection[str]) -> list[LateField]:
    """Those of the columns `names` that older rows have elsewhere."""
    found = found_fields(table)
    return [_late_field(name, found) for name in names if _is_late(name, found)]


def late_fields_of(bronze: str, fold: KeyedFold) -> list[LateField]:
    """The fold's columns of bronze that older rows have elsewhere."""
    return late_fields(table_to_read(bronze), event_schema(fold).names)


def _is_late(name: str, found: Mapping[str, FoundField]) -> bool:
    return name in found and LATE in found[name].metadata


def _late_field(name: str, found: Mapping[str, FoundField]) -> LateField:
    was = found[name].metadata.get(WAS)
    old = _late_field(was, found) if was and was in found else None
    return LateField(name, found[name].type, _found_landed(name, found), old)


def _found_landed(name: str, found: Mapping[str, FoundField]) -> Landed:
    metadata = found[name].metadata
    times = Times(**json.loads(metadata[TIMES])) if TIMES in metadata else ISO
    return Landed(metadata.get(PATH, name), times)


def _declared_landed(source: Source, field: Field) -> Landed:
    has_times = "timestamp" in field.type.replace("timestamp_ntz", "")
    return Landed(field.landed, (field.times or source.times) if has_times else ISO)


def _marks(landed: Landed) -> dict[str, str]:
    return {PATH: landed.path, TIMES: json.dumps(asdict(landed.times))}


def _column(field: Field, landed: Landed) -> Column:
    # Nearly all are called as they land, and these are what they are without a word.
    marks = {} if landed == Landed(field.name) else _marks(landed)
    return Column(field.name, field.type, field.comment, marks=marks)


def with_late_fields(rows: pa.Table, late: Iterable[LateField]) -> pa.Table:
    """Rows of bronze with those columns as the table has them today.

    `rows` have `LateField.columns` but for those that are younger than their file.
    """
    for field in late:
        column = _filled(rows, field)
        if field.name in rows.column_names:
            rows = rows.drop_columns(field.name)
        rows = rows.append_column(field.name, column)
    return rows


def _filled(rows: pa.Table, field: LateField) -> pa.ChunkedArray:
    kind = arrow_type(field.type)
    if field.name in rows.column_names:
        column = rows[field.name].cast(kind)
    else:
        column = pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    if column.null_count and field.was is not None:
        column = pc.coalesce(column, _filled(rows, field.was).cast(kind))
    if column.null_count:
        texts = pc.if_else(column.is_null(), rows[RESCUED], None)
        column = pc.coalesce(column, rescued_values(field, texts))
    return column


def rescued_values(field: LateField, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The field's values of what was rescued."""
    path, times = field.landed
    values = read_rescued(field.type, path, texts.to_pylist(), times)
    return pa.array(values, arrow_type(field.type))


def follow_fields(bronze: Table, source: Source) -> None:
    """Give bronze the columns that the source declares anew; SettingsError for what cannot be.

    A column whose field is gone stays, and what still lands of it is rescued; so it is noted there.
    """
    bronze.alter(lambda table: _follow(table, bronze.path, source))


def add_fields(lake: Lake, name: str) -> None:
    """Give bronze of a source the columns of fields that were declared since the last ingestion."""
    path = lake.bronze(name)
    source = next((each for each in all_sources() if each.name == name), None)
    if source is not None and lake.is_delta_table(path):
        known = {field.name for field in table_to_read(path).schema().fields}
        if {field.name for field in source.fields} - known:
            follow_fields(Table.open(lake, path), source)


def _follow(table: DeltaTable, path: str, source: Source) -> None:
    _refuse_others(table, path, source)
    found, added = found_fields(table), {column.name for column in added_columns(source)}
    if new := [field for field in source.fields if field.name not in found]:
        _add(table, source, new)
    declared = {field.name: _declared_landed(source, field) for field in source.fields}
    for name in found.keys() - added:
        marks = {}
        if name in declared and declared[name] != _found_landed(name, found):
            marks = _marks(declared[name])
        if name not in declared or _is_late(name, found):
            marks[LATE] = DECLARED if name in declared else DROPPED
        known = found[name].metadata
        if marks.items() - known.items():
            table.alter.set_column_metadata(name, {**known, **marks})


def _add(table: DeltaTable, source: Source, new: Iterable[Field]) -> None:
    is_late = bool(table.file_uris())
    columns = []
    for field in new:
        marks = _marks(_declared_landed(source, field))
        marks |= ({LATE: DECLARED} if is_late else {}) | ({WAS: field.was} if field.was else {})
        columns.append(Column(field.name, field.type, field.comment, marks=marks))
    table.alter.add_columns(Schema.from_arrow(documented(columns)).fields)


def refuse_other_fields(lake: Lake, source: Source) -> None:
    """SettingsError when bronze cannot become what the source now declares; it says the way out."""
    path = lake.bronze(source.name)
    if lake.is_delta_table(path):
        _refuse_others(delta_table(path), path, source)


def _refuse_others(table: DeltaTable, path: str, source: Source) -> None:
    refuse_taken(source)
    found = found_fields(table)
    _refuse_other_case(source, path, found)
    types = {name: column.type for name, column in found.items()}
    for field in source.fields:
        column = found.get(field.name)
        if column is not None and column.type != field.type:
            raise settings_changed(field.name, _other_type(source, field, path, column.type))
        is_late = column is None or LATE in column.metadata
        if is_late and field.was is None and field.required and table.file_uris():
            raise settings_changed(
                field.name,
                f"source {source.name} requires {field.name}, which rows in {path} do not have: "
                "declare it with required=False",
            )
        if column is None and field.was is not None:
            _refuse_was(source, field, path, types)
        _refuse_landed(source, field, path, found)


def _refuse_other_case(source: Source, path: str, found: Collection[str]) -> None:
    names = {name.lower(): name for name in found}
    for field in source.fields:
        column = names.get(field.name.lower(), field.name)
        if column != field.name:
            raise settings_changed(
                field.name,
                f"source {source.name} declares {field.name}, but {path} has a column {column}, and no "
                f"table has two that differ in case alone: call the field {column}, with "
                f"path={field.landed!r}, or something else",
            )


def _refuse_was(source: Source, field: Field, path: str, found: Mapping[str, str]) -> None:
    old = found.get(str(field.was))
    if old is None:
        raise settings_changed(
            field.name,
            f"source {source.name}: {field.name} was={field.was!r}, but {path} has no such column; "
            f"its columns are {', '.join(found)}",
        )
    if not is_wider(sql_type(field.type), sql_type(old)):
        raise settings_changed(
            field.name,
            f"source {source.name}: {field.name} {field.type} cannot hold all that {field.was} {old} "
            "does: give it a type that is as wide, or leave was= out",
        )


def _refuse_landed(
    source: Source, field: Field, path: str, found: Mapping[str, FoundField]
) -> None:
    """What was rescued of a column is read by one path, and times that are written in one way."""
    declared = _declared_landed(source, field)
    if _is_late(field.name, found) and declared != (known := _found_landed(field.name, found)):
        raise settings_changed(
            field.name,
            f"source {source.name} declares {field.name} with path={declared.path!r} and "
            f"{declared.times}, but {path} has values of it in {RESCUED}, which landed as "
            f"{known.path!r} with {known.times}: give the field another name, with "
            f"path={declared.path!r} and was={field.name!r}",
        )
    name = field.name if field.name in found else str(field.was)
    if not _is_late(name, found) or found[name].metadata[LATE] != DROPPED:
        return
    if other := _late_field(name, found).times() - {declared.times}:
        raise settings_changed(
            field.name,
            f"source {source.name} declares {field.name} with {declared.times}, but the column "
            f"{name} of {path} was dropped, and had {min(map(str, other))}: how times are written that "
            "were rescued since is not sure; give the field a new name, with "
            f"path={field.landed!r} and without was=, which reads all that was rescued by its own times",
        )


def _other_type(source: Source, field: Field, path: str, found: str) -> str:
    way_out = f"another name, with path={field.landed!r}"
    if is_wider(sql_type(field.type), sql_type(found)):
        way_out += f" and was={field.name!r}, which reads older rows from the column of today"
    return (
        f"source {source.name} declares {field.name} {field.type}, but {path} has {found}, and a "
        f"column keeps its type: declare it as it was, or give the field {way_out}"
    )


def is_wider(new: SqlType, old: SqlType) -> bool:
    """Whether a column of type `new` can hold each value of type `old`."""
    return new == old or (not new.parts and new.holds(old))
