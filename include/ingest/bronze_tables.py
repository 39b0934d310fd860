"""`bronze/<source>` and `quarantine/<source>`: their columns, and how both are read."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema

from include.connectors import ISO, Times
from include.fold.arrow_values import event_schema
from include.fold.definition import KeyedFold
from include.ingest.landed_values import read_rescued
from include.ingest.splits import connector_columns
from include.lake.columns import APPEND_ONLY, Column, arrow_type, documented, listed, sql_name
from include.lake.delta_log import (
    CHECKED,
    create_if_absent,
    dataset_of,
    delta_table,
    found_columns,
    open_table,
    unbroken,
)
from include.lake.errors import SettingsError, settings_changed
from include.lake.paths import Lake
from include.lake.table import Table
from include.registry import all_sources
from include.settings import RESCUED, Field, Source

# A stream has read until the last commit with rows. While its source is silent it reads a keepalive
# once half of this is over, before the log is cleaned up there (`needed_commit`).
KEEPS_LOG = {"delta.logRetentionDuration": "interval 90 days"}
FEATURES = {"delta.enableDeletionVectors": "false", **KEEPS_LOG}
BRONZE_FEATURES = {APPEND_ONLY: "true"}
QUARANTINE_COLUMNS = listed("""
quarantine_id string Key: of the file's name and the row's number in it
reason_code string Why it was refused: a stable word, such as wrong_type
reason string Why it was refused, for people
raw string The row as landed (CSV: after its header; Parquet: as JSON); null for a whole file
source_file string The file it landed in, below landing/<source>
row_number bigint Its number in the file, from 1; 0 for a whole file
ingested_at timestamp When ingestion refused it
resolved_at timestamp When it was ingested after all; null while open
correction string The last corrected text given to re-ingestion; null if none
""")


def create_tables(lake: Lake, source: Source) -> None:
    """Create bronze and quarantine of the source, where they are missing."""
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


def read_quarantine(
    lake: Lake, source: str, wanted: pc.Expression, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows for which `wanted` holds, their page checksums verified; none without a quarantine."""
    path = lake.quarantine(source)
    if lake.is_delta_table(path):
        read = None if columns is None else list(columns)
        options = {"filter": wanted, "fragment_scan_options": CHECKED}
        with unbroken(path):
            yield from dataset_of(path).to_batches(columns=read, **options)


def quarantine_columns(source: Source) -> tuple[Column, ...]:
    return (*QUARANTINE_COLUMNS, *connector_columns(source, is_refused=True))


def bronze_columns(source: Source) -> tuple[Column, ...]:
    """The source's fields, then the added columns; raises SettingsError where these share a name."""
    _refuse_added_names(source)
    fields = (Column(field.name, field.type, field.comment) for field in source.fields)
    return (*fields, *added_columns(source))


def _refuse_added_names(source: Source) -> None:
    added = {column.name for column in added_columns(source)}
    if field := next((each for each in source.fields if each.name.lower() in added), None):
        said = f"source {source.name}: bronze has a column {field.name} of its own"
        mend = f"give the field another name, with path={field.landed!r}"
        raise SettingsError(f"{said}: {mend}", subject=field.name)


def added_columns(source: Source) -> tuple[Column, ...]:
    """The columns that ingestion adds to the fields."""
    reached = "The newest least(event_time, ingested_at) of all earlier commits"
    if source.watermark_per is not None:
        reached += ", the least of those of the groups that were not idle, and never going back"
    times = listed(f"""
event_time timestamp When it happened: the landed {source.time_field}
event_date date The UTC date of event_time
ingested_at timestamp When it was ingested: later than in earlier commits
watermark_before timestamp {reached}; null in the first
watermark_after timestamp watermark_before with this commit's rows as well
source_file string The file it landed in, below landing/<source>; #<quarantine_id> if re-ingested
""")
    return (
        *times,
        Column("is_heartbeat", "boolean", "No event: only moves the watermark", nullable=False),
        *connector_columns(source),
        Column(RESCUED, "string", "JSON: values of the row that are no fields, by name, as landed"),
    )


# In the metadata of a column that some rows have in `_rescued_data`: how it landed there, as JSON
# (`_landing`). Empty: its field is gone, and its values are rescued since.
LATE = "stateful.late"


class LateField(NamedTuple):
    """A column that some rows have in `_rescued_data`."""

    name: str
    type: str
    path: str  # of the value there
    times: Times

    def columns(self) -> set[str]:
        """The names of the columns that its values are read from."""
        return {self.name, RESCUED}


def late_fields(table: DeltaTable, names: Collection[str]) -> list[LateField]:
    """The columns among `names` that some rows have in `_rescued_data`."""
    kinds, late = dict(found_columns(table)), list[LateField]()
    for field in table.schema().fields:
        if field.name in names and (landing := field.metadata.get(LATE)):
            path, times = json.loads(landing)
            late.append(LateField(field.name, sql_name(kinds[field.name]), path, Times(**times)))
    return late


def late_fields_of(bronze: str, fold: KeyedFold) -> list[LateField]:
    """The late fields that a fold reads of bronze."""
    return late_fields(open_table(bronze), event_schema(fold).names)


def with_late_fields(rows: pa.Table, late: Iterable[LateField]) -> pa.Table:
    """Rows of bronze with values of late fields read from `_rescued_data`.

    `rows` have `LateField.columns` as far as their file has them.
    """
    for field in late:
        kind = arrow_type(field.type)
        column = pa.chunked_array([pa.nulls(rows.num_rows, kind)])
        if field.name in rows.column_names:
            column = rows[field.name].cast(kind)
            rows = rows.drop_columns(field.name)
        if column.null_count:
            texts = pc.if_else(column.is_null(), rows[RESCUED], None).to_pylist()
            rescued = read_rescued(field.type, field.path, texts, field.times)
            column = pc.coalesce(column, pa.array(rescued, kind))
        rows = rows.append_column(field.name, column)
    return rows


def _landing(source: Source, field: Field) -> str:
    """The path of a field's values and the format of their times, as JSON."""
    has_times = "timestamp" in field.type.replace("timestamp_ntz", "")
    times = (field.times or source.times) if has_times else ISO
    return json.dumps([field.landed, asdict(times)])


def follow_fields(bronze: Table, source: Source) -> None:
    """Add the columns of new fields to bronze; a column whose field is gone stays."""
    bronze.alter(lambda table: _follow(table, bronze.path, source))


def add_fields(lake: Lake, name: str) -> None:
    """Add the columns of fields that were declared since the last ingestion to a source's bronze."""
    path = lake.bronze(name)
    source = next((each for each in all_sources() if each.name == name), None)
    if source is not None and lake.is_delta_table(path):
        known = {field.name for field in open_table(path).schema().fields}
        if {field.name for field in source.fields} - known:
            follow_fields(Table.open(lake, path), source)


def _follow(table: DeltaTable, path: str, source: Source) -> None:
    _refuse_others(table, path, source)
    found = {field.name: field.metadata for field in table.schema().fields}
    landing = {field.name: _landing(source, field) for field in source.fields}
    has_rows = bool(table.file_uris())
    new = [
        Column(f.name, f.type, f.comment, marks={LATE: landing[f.name]} if has_rows else {})
        for f in source.fields
        if f.name not in found
    ]
    if new:
        table.alter.add_columns(Schema.from_arrow(documented(new)).fields)
    for name in found.keys() - {column.name for column in added_columns(source)}:
        late = found[name].get(LATE)
        if late is None and name not in landing:
            table.alter.set_column_metadata(name, {**found[name], LATE: ""})
        if late == "" and name in landing:
            table.alter.set_column_metadata(name, {**found[name], LATE: landing[name]})


def refuse_other_fields(lake: Lake, source: Source) -> None:
    """Raise SettingsError, with what to do, when bronze cannot have the fields that the source declares."""
    path = lake.bronze(source.name)
    if lake.is_delta_table(path):
        _refuse_others(delta_table(path), path, source)


def _refuse_others(table: DeltaTable, path: str, source: Source) -> None:
    _refuse_added_names(source)
    # No table has two columns whose names differ in case alone.
    found = {name.lower(): (name, sql_name(kind)) for name, kind in found_columns(table)}
    late = {field.name: field.metadata.get(LATE) for field in table.schema().fields}
    for field in source.fields:
        name, kind = found.get(field.name.lower(), (field.name, field.type))
        if (name, kind) != (field.name, field.type):
            raise _another_name(source, field, f"{path} has {name} {kind}, and keeps both")
        landed = late.get(name, "")
        if landed not in (None, "", _landing(source, field)):
            said = f"{path} has values of it in {RESCUED}, with another path or other times"
            raise _another_name(source, field, said)
        if field.required and landed is not None and table.file_uris():
            said = f"source {source.name} requires {field.name}, which rows of {path} lack"
            raise settings_changed(field.name, said)


def _another_name(source: Source, field: Field, said: str) -> SettingsError:
    declared = f"source {source.name} declares {field.name} {field.type}"
    mend = f"give the field another name, with path={field.landed!r}"
    return settings_changed(field.name, f"{declared}, but {said}: {mend}")
