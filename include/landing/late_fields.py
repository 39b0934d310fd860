"""Bronze's columns that were added later, and where older rows have their values."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.fold.definition import KeyedFold
from include.fold.schemas import event_schema
from include.lake.columns import Column, arrow_type, columns_of, sql_name
from include.lake.read_tables import table_to_read
from include.landed_formats import ISO, Times
from include.landing.rescue import read_rescued
from include.settings import RESCUED

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
    return LateField(name, found[name].type, rescued_as, old, times_of(metadata), also_as)


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
