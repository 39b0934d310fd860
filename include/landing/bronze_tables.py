"""`bronze/<source>` and `quarantine/<source>`: made with documented columns, and brought after the declared fields."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema

from include.fold.definition import KeyedFold
from include.fold.records import SqlType, sql_type
from include.fold.schemas import event_schema
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
from include.lake.errors import settings_changed
from include.lake.paths import Lake
from include.lake.table import Table
from include.landing.connector import origin_columns, refused_columns
from include.landing.rescue import read_rescued
from include.origins import ISO, Times
from include.registry import all_sources
from include.settings import RESCUED, Field, SettingsError, Source

# A stream's position stays at the last commit with rows. Should the log be cut there while its
# source is silent (Delta's default is 30 days), the stream could not go on: before that it reads
# a still row (include/checkpoint/bronze_readers.py), and this is the time that it has for it. And
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
    fields = (Column(field.name, field.type, field.comment) for field in source.fields)
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
    )


# Bronze's own column of that name is known by its comment: a field of a source that rescues nothing
# may be called so, too.
RESCUED_COLUMN = Column(
    RESCUED, "string", "JSON: what the row had beside its source's fields, by name, as landed"
)
# In a column's metadata: the path at which its values were rescued, and how times were written
# there (`Times`, as a JSON array); the column that had them.
RESCUED_AS, TIMES, WAS = "stateful.rescued_as", "stateful.times", "stateful.was"
# How the field writes times as it was declared last; and, "true" or "false" (a mark cannot be taken
# away), whether it is no longer.
LAST_TIMES, DROPPED = "stateful.last_times", "stateful.dropped"
# A property of the table, JSON: of columns, all the paths that they were ever declared with.
PATHS = "stateful.paths"


class FoundField(NamedTuple):
    """A column of bronze: its SQL type, and what its metadata says."""

    type: str
    metadata: dict[str, str]


class LateField(NamedTuple):
    """A column that older rows have elsewhere: in another, or in what was rescued of them."""

    name: str
    type: str
    rescued_as: str | None  # None: the table has rescued nothing yet
    was: "LateField | None"
    times: Times = ISO  # how what was rescued writes times
    also_as: tuple[str, ...] = ()  # where else it was rescued, the newest first

    def moved_paths(self) -> list[tuple[str, ...]]:
        """The paths that older rows are read under, where these are more than one."""
        has_moved = self.rescued_as is not None and self.also_as
        own = [(str(self.rescued_as), *self.also_as)] if has_moved else []
        return own + (self.was.moved_paths() if self.was is not None else [])

    def columns(self) -> set[str]:
        """All that its values are read from."""
        known = {self.name} | ({RESCUED} if self.rescued_as is not None else set())
        return known | (self.was.columns() if self.was is not None else set())


def found_fields(table: DeltaTable) -> dict[str, FoundField]:
    """The columns of bronze, by name."""
    schema = table.schema()
    types = dict(columns_of(pa.schema(schema.to_arrow())))
    return {
        field.name: FoundField(sql_name(types[field.name]), dict(field.metadata))
        for field in schema.fields
    }


def has_rescued(found: Mapping[str, FoundField]) -> bool:
    """Whether bronze has the column that keeps what is no field, and not a field of that name."""
    column = found.get(RESCUED)
    return column is not None and column.metadata.get("comment") == RESCUED_COLUMN.comment


def late_fields(table: DeltaTable, names: Collection[str]) -> list[LateField]:
    """Those of the columns `names` that older rows have elsewhere."""
    found, paths = found_fields(table), paths_of(table)
    fields = (_late_field(name, found, paths) for name in names if name in found)
    return [field for field in fields if field.rescued_as is not None or field.was is not None]


def late_fields_of(bronze: str, fold: KeyedFold) -> list[LateField]:
    """The fold's columns of bronze that older rows have elsewhere."""
    return late_fields(table_to_read(bronze), event_schema(fold).names)


def paths_of(table: DeltaTable) -> dict[str, list[str]]:
    """Of columns, the paths that they were declared with, where these are not their names alone."""
    found: dict[str, list[str]] = json.loads(table.metadata().configuration.get(PATHS, "{}"))
    return found


def _late_field(
    name: str, found: dict[str, FoundField], paths: Mapping[str, list[str]]
) -> LateField:
    metadata = found[name].metadata
    rescued_as = metadata.get(RESCUED_AS) if has_rescued(found) else None
    was = metadata.get(WAS)
    old = _late_field(was, found, paths) if was in found else None
    also_as = tuple(path for path in reversed(paths.get(name, [])) if path != rescued_as)
    return LateField(
        name, found[name].type, rescued_as, was=old, times=times_of(metadata), also_as=also_as
    )


def times_of(metadata: Mapping[str, str]) -> Times:
    """As a column's metadata says."""
    return read_times(metadata[TIMES]) if TIMES in metadata else ISO


def read_times(text: str) -> Times:
    """Of a mark."""
    format, zone = json.loads(text)
    return Times(format=format, zone=zone)


def written_times(column: str, found: Mapping[str, FoundField]) -> set[str]:
    """The marks of all ways in which times were written that the column is read from."""
    if column not in found:
        return set()
    marks = found[column].metadata
    own = {marks[name] for name in (TIMES, LAST_TIMES) if name in marks}
    return own | (written_times(marks[WAS], found) if WAS in marks else set())


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
    if column.null_count and field.rescued_as is not None and RESCUED in rows.column_names:
        texts = pc.if_else(column.is_null(), rows[RESCUED], None)
        column = pc.coalesce(column, rescued_values(field, texts))
    return column


def rescued_values(field: LateField, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The field's values of what was rescued."""
    left = texts.to_pylist()
    values: list[object] = [None] * len(left)
    for path in (str(field.rescued_as), *field.also_as):
        read = read_rescued(field.type, path, left, field.times)
        values = [new if value is None else value for value, new in zip(values, read, strict=True)]
        left = [text if value is None else None for text, value in zip(left, values, strict=True)]
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
    found = found_fields(table)
    _add_new(table, source, found)
    paths = _keep_paths(table, source, found)
    kept = {field.name for field in source.fields} | {c.name for c in added_columns(source)}
    for name in found.keys() - kept - {RESCUED}:
        known = found[name].metadata
        last = paths.get(name, [known.get(RESCUED_AS, name)])[-1]
        _mark(table, name, known, {RESCUED_AS: last, DROPPED: "true"})
    for field in source.fields:
        known = found[field.name].metadata if field.name in found else {}
        if RESCUED_AS in known:  # declared again: under the path that it has now
            times = _times(source, field)
            marks = {**times, **known, **_last(times), RESCUED_AS: field.landed, DROPPED: "false"}
            _mark(table, field.name, known, marks)


def _add_new(table: DeltaTable, source: Source, found: Mapping[str, FoundField]) -> None:
    new = [field for field in source.fields if field.name not in found]
    if not new:
        return
    columns = documented(Column(f.name, f.type, f.comment) for f in new)
    for index, field in enumerate(new):
        marks = (columns.field(index).metadata or {}) | _marks(source, field)
        columns = columns.set(index, columns.field(index).with_metadata(marks))
    table.alter.add_columns(Schema.from_arrow(columns).fields)


def _keep_paths(
    table: DeltaTable, source: Source, found: Mapping[str, FoundField]
) -> dict[str, list[str]]:
    """Of columns, all paths, that of today last, where it is not the name alone: so that a field that
    is dropped, and declared again by another, is found under each."""
    known = paths_of(table)
    paths = dict(known)
    is_older = table.version() > 0  # else it was made just now, with the fields of today
    for field in source.fields:
        had = paths.get(field.name, _untold_paths(field.name, found) if is_older else [])
        paths[field.name] = [*(path for path in had if path != field.landed), field.landed]
    # Nearly all are called as they land, and these are what they are without a word.
    paths = {name: each for name, each in paths.items() if each != [name]}
    if paths != known:
        told = {PATHS: json.dumps(paths)}
        table.alter.set_table_properties(told, raise_if_not_exists=False)
    return paths


def _untold_paths(name: str, found: Mapping[str, FoundField]) -> list[str]:
    """Of a column that had one path ever; none of one that is new."""
    return [found[name].metadata.get(RESCUED_AS, name)] if name in found else []


def _marks(source: Source, field: Field) -> dict[str, str]:
    was = {WAS: field.was} if field.was else {}
    times = _times(source, field)
    return {RESCUED_AS: field.landed, DROPPED: "false"} | was | times | _last(times)


def _times(source: Source, field: Field) -> dict[str, str]:
    """Of a field without times none. They stay what they were when it was declared."""
    if "timestamp" not in field.type.replace("timestamp_ntz", ""):
        return {}
    times = field.times or source.times
    return {TIMES: json.dumps([times.format, times.zone])}


def _last(times: Mapping[str, str]) -> dict[str, str]:
    return {LAST_TIMES: times[TIMES]} if times else {}


def _mark(
    table: DeltaTable, column: str, known: Mapping[str, str], marks: Mapping[str, str]
) -> None:
    if marks.items() - known.items():
        table.alter.set_column_metadata(column, {**known, **marks})


def add_rescued(bronze: Table) -> None:
    """Give bronze the column that keeps what is no field, where it has none."""

    def add(table: DeltaTable) -> None:
        if RESCUED not in found_fields(table):
            table.alter.add_columns(Schema.from_arrow(documented([RESCUED_COLUMN])).fields)

    bronze.alter(add)


def refuse_other_fields(lake: Lake, source: Source) -> None:
    """SettingsError when bronze cannot become what the source now declares; it says the way out."""
    path = lake.bronze(source.name)
    if lake.is_delta_table(path):
        _refuse_others(delta_table(path), path, source)


def _refuse_others(table: DeltaTable, path: str, source: Source) -> None:
    refuse_taken(source)
    found = found_fields(table)
    _refuse_rescued(source, path, found)
    _refuse_other_case(source, path, found)
    types = {name: column.type for name, column in found.items()}
    for field in source.fields:
        column = found.get(field.name)
        if column is not None and column.type != field.type:
            raise settings_changed(field.name, _other_type(source, field, path, column.type))
        is_late = column is None or RESCUED_AS in column.metadata
        if is_late and field.was is None and field.required and table.file_uris():
            raise settings_changed(
                field.name,
                f"source {source.name} requires {field.name}, which rows in {path} do not have: "
                "declare it with required=False",
            )
        if column is None and field.was is not None:
            _refuse_was(source, field, path, types)
        _refuse_times(source, field, path, found)


def _refuse_rescued(source: Source, path: str, found: Mapping[str, FoundField]) -> None:
    names = {name.lower(): name for name in found}
    if source.rescue and RESCUED in names and not has_rescued(found):
        raise settings_changed(
            RESCUED,
            f"source {source.name}: in {path} the column {names[RESCUED]} was a field's, and a column stays: "
            "what is no field cannot be kept there; declare rescue=False",
        )
    if has_rescued(found) and RESCUED in {field.name.lower() for field in source.fields}:
        raise settings_changed(
            RESCUED,
            f"source {source.name}: {path} has kept what was no field in its column {RESCUED}: give the "
            f"field another name, with path={RESCUED!r}",
        )


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


def _refuse_times(source: Source, field: Field, path: str, found: Mapping[str, FoundField]) -> None:
    """What was rescued since a column was dropped may be written otherwise than what was before."""
    times = _times(source, field).get(TIMES)
    name = field.name if field.name in found else str(field.was)
    written = written_times(name, found)
    is_dropped = name in found and found[name].metadata.get(DROPPED) == "true"
    if times is None or not is_dropped or written <= {times}:
        return
    known = sorted(str(read_times(text)) for text in written)
    as_it_was = f"declare times={known[0]} if producers still do so, or " if len(known) == 1 else ""
    raise settings_changed(
        field.name,
        f"source {source.name} declares {field.name} with times={read_times(times)}, but the column "
        f"{name} of {path} was dropped, and had {' and '.join(known)}: how times are written that "
        f"were rescued since is not sure; {as_it_was}give the field a new name, with "
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
