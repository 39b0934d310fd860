"""Bronze follows the fields that its source declares, by its metadata alone: no row is rewritten.

A column that was added later says in its own metadata where older rows have its values
(late_fields.py reads them there).
"""

import json
from collections.abc import Collection, Mapping

from deltalake import DeltaTable, Schema

from include.fold.sql_types import SqlType, sql_type
from include.lake.columns import Column, documented
from include.lake.how_to_mend import how_to_mend
from include.lake.open_delta import delta_table
from include.lake.ops import despite_others
from include.lake.paths import Lake
from include.landing.bronze_tables import added_columns, bronze_columns, refuse_taken
from include.landing.late_fields import (
    DROPPED,
    LAST_TIMES,
    PATHS,
    RESCUED_AS,
    RESCUED_COLUMN,
    TIMES,
    WAS,
    FoundField,
    found_fields,
    has_rescued,
    paths_of,
    read_times,
    written_times,
)
from include.settings import RESCUED, Field, SettingsError, Source


def follow_fields(lake: Lake, source: Source) -> None:
    """Give bronze the columns that the source declares anew; SettingsError for what cannot be.

    A column whose field is gone stays, and what still lands of it is rescued; so it is noted there.
    """
    path = lake.bronze(source.name)
    despite_others(lambda: _follow(delta_table(path), path, source))


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


def add_rescued(lake: Lake, source: Source) -> None:
    """Give bronze the column that keeps what is no field, where it has none."""

    def add() -> None:
        table = delta_table(lake.bronze(source.name))
        if RESCUED not in found_fields(table):
            table.alter.add_columns(Schema.from_arrow(documented([RESCUED_COLUMN])).fields)

    despite_others(add)


def refuse_other_fields(lake: Lake, source: Source) -> None:
    """SettingsError when bronze cannot become what the source now declares; it says the way out."""
    path = lake.bronze(source.name)
    if lake.is_delta_table(path):
        _refuse_others(delta_table(path), path, source)


def _refuse_others(table: DeltaTable, path: str, source: Source) -> None:
    refuse_taken(source)
    found = found_fields(table)
    _refuse_not_null(source, path, table)
    _refuse_rescued(source, path, found)
    _refuse_other_case(source, path, found)
    types = {name: column.type for name, column in found.items()}
    for field in source.fields:
        column = found.get(field.name)
        if column is not None and column.type != field.type:
            raise SettingsError(
                _other_type(source, field, path, column.type),
                code="settings_changed",
                subject=field.name,
            )
        is_late = column is None or RESCUED_AS in column.metadata
        if is_late and field.was is None and field.required and table.file_uris():
            raise SettingsError(
                f"source {source.name} requires {field.name}, which rows in {path} do not have: "
                "declare it with required=False",
                code="settings_changed",
                subject=field.name,
            )
        if column is None and field.was is not None:
            _refuse_was(source, field, path, types)
        _refuse_times(source, field, path, found)


def _refuse_not_null(source: Source, path: str, table: DeltaTable) -> None:
    """Ingestion writes null to a column that others have added."""
    ours = {c.name for c in bronze_columns(source)}
    for column in table.schema().fields:
        if column.name not in ours and not column.nullable:
            raise SettingsError(
                f"source {source.name}: {path} has a column {column.name} that must not be null, and is "
                f"neither a field nor ours: no row could be ingested. In Spark: ALTER TABLE delta.`{path}` "
                f"ALTER COLUMN `{column.name}` DROP NOT NULL; or {how_to_mend(path)}",
                code="changed_by_others",
                subject=column.name,
            )


def _refuse_rescued(source: Source, path: str, found: Mapping[str, FoundField]) -> None:
    names = {name.lower(): name for name in found}
    if source.rescue and RESCUED in names and not has_rescued(found):
        raise SettingsError(
            f"source {source.name}: in {path} the column {names[RESCUED]} was a field's, and a column stays: "
            "what is no field cannot be kept there; declare rescue=False",
            code="settings_changed",
            subject=RESCUED,
        )
    if has_rescued(found) and RESCUED in {field.name.lower() for field in source.fields}:
        raise SettingsError(
            f"source {source.name}: {path} has kept what was no field in its column {RESCUED}: give the "
            f"field another name, with path={RESCUED!r}",
            code="settings_changed",
            subject=RESCUED,
        )


def _refuse_other_case(source: Source, path: str, found: Collection[str]) -> None:
    names = {name.lower(): name for name in found}
    for field in source.fields:
        column = names.get(field.name.lower(), field.name)
        if column != field.name:
            raise SettingsError(
                f"source {source.name} declares {field.name}, but {path} has a column {column}, and no "
                f"table has two that differ in case alone: call the field {column}, with "
                f"path={field.landed!r}, or something else",
                code="settings_changed",
                subject=field.name,
            )


def _refuse_was(source: Source, field: Field, path: str, found: Mapping[str, str]) -> None:
    old = found.get(str(field.was))
    if old is None:
        raise SettingsError(
            f"source {source.name}: {field.name} was={field.was!r}, but {path} has no such column; "
            f"its columns are {', '.join(found)}",
            code="settings_changed",
            subject=field.name,
        )
    if not is_wider(sql_type(field.type), sql_type(old)):
        raise SettingsError(
            f"source {source.name}: {field.name} {field.type} cannot hold all that {field.was} {old} "
            "does: give it a type that is as wide, or leave was= out",
            code="settings_changed",
            subject=field.name,
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
    raise SettingsError(
        f"source {source.name} declares {field.name} with times={read_times(times)}, but the column "
        f"{name} of {path} was dropped, and had {' and '.join(known)}: how times are written that "
        f"were rescued since is not sure; {as_it_was}give the field a new name, with "
        f"path={field.landed!r} and without was=, which reads all that was rescued by its own times",
        code="settings_changed",
        subject=field.name,
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
