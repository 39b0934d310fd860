"""The definition of a stream: its fold with the settings of its entry, checks, and pinned settings.

Settings are compared as text, which each process has to write alike: sets are sorted, and values
that Python shows by their address, or cut off, are refused.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any

from croniter import croniter

from include.connectors import EVENT_TIME, INPUT
from include.fold.definition import (
    EMITTED_AT,
    EVENT_TIME_US,
    INGESTED_AT_US,
    Definition,
    KeyedFold,
    state_rows_ddl,
)
from include.fold.records import DefinitionError, sql_type
from include.lake.errors import SettingsError
from include.settings import AS_SOURCE, MILLISECOND, Field, Source, Stream

# Types whose repr is whole and the same in each process.
WHOLE = (bytes, Decimal, date, time, tzinfo, type)


def settings_text(stream: str, settings: Mapping[str, Any]) -> str:
    """Return settings as JSON. Raises SettingsError for a value that is not written alike everywhere."""
    for name, value in settings.items():
        try:
            json.dumps(value, default=_plain)
        except TypeError as error:
            raise _wrong(stream, name, f"of settings= cannot be pinned: {error}") from error
    return json.dumps(dict(sorted(settings.items())), default=_plain)


def _plain(value: Any) -> Any:
    """Return a value that JSON can write whole. Raises TypeError for other types."""
    if isinstance(value, Enum):
        return [str(value), value.value]
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, WHOLE):
        return repr(value)
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(each, default=_plain) for each in value)
    if is_dataclass(value):
        parts = {of.name: getattr(value, of.name) for of in fields(value)}
        return [type(value).__name__, parts]
    raise TypeError(f"{value!r} is nothing that each process writes alike")


# Columns of bronze, beside the fields of the source, that an event may have.
OF_INGESTION = (EVENT_TIME_US, INGESTED_AT_US, "source_file")


def load_definition(stream: Stream) -> Definition:
    """Return the definition of `stream`. Raises SettingsError for wrong settings or missing comments."""
    fold = _with_entry(stream)
    if unsaid := {column.name for column in fold.output_columns} - set(stream.comments):
        raise _wrong(stream.name, "comments", f"says nothing of {', '.join(sorted(unsaid))}")
    if fold.in_processing_time and stream.watermark_delay:
        raise _wrong(
            stream.name,
            "watermark_delay",
            f"must be 0, as nothing comes late in processing time, not {stream.watermark_delay}",
        )
    if stream.migrate_state is not None and not callable(stream.migrate_state):
        raise _wrong(stream.name, "migrate_state", "must be a function of a key's old state")
    return Definition(fold, stream.title or stream.name, stream.comments, stream.migrate_state)


def _with_entry(stream: Stream) -> KeyedFold:
    """Return the fold with the stream's name, `on_error` and `deduplicate`."""
    try:
        fold = _fold_of(stream)
        known = fold.deduplicate if stream.deduplicate == AS_SOURCE else stream.deduplicate
        return replace(fold, stream=stream.name, on_error=stream.on_error, deduplicate=known)
    except DefinitionError as error:
        said = f"stream {stream.name}: {error.message}"
        raise SettingsError(said, code=error.code, subject=error.subject) from error


def _wrong(stream: str, subject: str, said: str) -> SettingsError:
    return SettingsError(f"stream {stream}: {subject} {said}", subject=subject)


def check_stream(stream: Stream, source: Source) -> None:
    """Raise SettingsError for a stream whose parts do not fit together, or not its source."""
    # R (random) is another instant at each reading.
    is_random = re.search(r"\bR\b", stream.schedule, re.IGNORECASE)
    # Airflow would refuse it only when it reads the Dag.
    if is_random or not croniter.is_valid(stream.schedule):
        raise _wrong(stream.name, "schedule", f"must be a cron expression, not {stream.schedule!r}")
    fold = load_definition(stream).fold
    _check_parent(stream, fold, source)
    _check_events(fold, source)
    _settings(stream, fold)  # raises for what cannot be written as text


def _check_parent(stream: Stream, fold: KeyedFold, source: Source) -> None:
    """Raise SettingsError for what a stream of a derived source cannot be."""
    if source.connector is None or not source.is_derived:
        return
    place = source.connector.place
    if fold.in_processing_time:
        said = f"is processing time, but rows of {place} are known by when they happened"
        raise _wrong(stream.name, "timeout", said)
    if stream.watermark_delay:
        said = f"must be 0: it is complete until the same instant as {source.name}"
        raise _wrong(stream.name, "watermark_delay", said)


def source_of_outputs(source: Source, parent: Stream) -> Source:
    """Return a source of `parent`'s table with its columns as fields, or those that it declares.

    Raises SettingsError for a table that is updated, and for a field that is no such column.
    """
    definition, said = load_definition(parent), f"source {source.name}"
    if definition.fold.output_mode == "update":
        said += f": {parent.name} updates its table, and only rows that are appended are events"
        raise SettingsError(said, subject=parent.name)
    columns = [
        Field(
            name=column.name,
            type=column.kind,
            comment=definition.comments[column.name],
            required=not column.nullable,
        )
        for column in definition.fold.output_columns
    ]
    return replace(source, time_field=EMITTED_AT, fields=_chosen(source, columns))


def source_of_inputs(source: Source, inputs: Sequence[Source]) -> Source:
    """Return a merged source with all fields of its inputs, or those that it declares, and the input's name.

    Raises SettingsError for a field that has two types, and one that no input has.
    """
    said, tag = "Name of the input that the row is of", "is what names the input here"
    found: dict[str, list[Field]] = {}
    for field in (field for each in inputs for field in each.fields):
        found.setdefault(field.name, []).append(field)
    for name, same in found.items():
        if name.lower() == INPUT or len({field.type for field in same}) > 1:
            kinds = tag if name.lower() == INPUT else f"is {' and '.join(f.type for f in same)}"
            raise SettingsError(f"source {source.name}: {name} of its inputs {kinds}", subject=name)
    columns = [Field(name=INPUT, type="string", comment=said)]
    for name, same in found.items():
        known, is_in_all = same[0], len(same) == len(inputs)
        required = is_in_all and all(field.required for field in same)
        columns.append(Field(name=name, type=known.type, comment=known.comment, required=required))
    chosen = _chosen(source, columns)
    if not (per := [field.name for field in chosen if field.landed == INPUT]):
        per, chosen = [INPUT], (columns[0], *chosen)
    return replace(source, time_field=EVENT_TIME, fields=chosen, watermark_per=per[0])


def _chosen(source: Source, columns: Sequence[Field]) -> tuple[Field, ...]:
    """Return the fields that a derived source declares, or all columns; SettingsError where one is no such column."""
    known = {column.name: column for column in columns}
    place = "" if source.connector is None else source.connector.place
    for field in source.fields:
        has, said = known.get(field.landed), f"source {source.name}: {place} has"
        if has is None:
            said += f" no {field.landed}, but {', '.join(known)}"
            raise SettingsError(said, subject=field.landed)
        if (has.type, has.required) != (field.type, field.required):
            nullable = "" if has.required else ", required=False"
            said += f" {field.landed} as {has.type}{nullable}"
            raise SettingsError(said, subject=field.landed)
    return source.fields or tuple(columns)


def _check_events(fold: KeyedFold, source: Source) -> None:
    """Raise SettingsError for an event field of another type, or not nullable where the source's is."""
    declared = {field.name: field for field in source.fields}
    for column in fold.event_columns:
        field, said = declared.get(column.name), None
        if field is None:
            # Bronze keeps the column of a field that was dropped or renamed, without values.
            if column.name not in OF_INGESTION:
                said = f"is no field of source {source.name}, which has {', '.join(declared)}"
        elif not sql_type(column.kind).holds(sql_type(field.type)):
            said = f"is {column.kind}, but in source {source.name} it is {field.type}"
        elif not field.required and not column.nullable:
            said = (
                f"is never None, but source {source.name} does not require it: declare it `| None`"
            )
        if said is not None:
            raise _wrong(fold.stream, f"{fold.event.__name__}.{column.name}", said)


def _fold_of(stream: Stream) -> KeyedFold:
    made = stream.fold
    if not isinstance(made, KeyedFold | Callable):
        raise _wrong(
            stream.name, "fold", f"must be a fold, or a function that makes one, not {made!r}"
        )
    wanted = set() if isinstance(made, KeyedFold) else set(inspect.signature(made).parameters)
    if wanted != set(stream.settings):
        said = f"must be what the fold takes, {', '.join(sorted(wanted)) or 'none'}"
        raise _wrong(stream.name, "settings", said)
    return made if isinstance(made, KeyedFold) else made(**stream.settings)


def pinned_settings(stream: Stream, fold: KeyedFold) -> dict[str, Any]:
    """Return the settings that state and table depend on, as the row of a generation stores them."""
    return {
        "buckets": stream.buckets,
        "state_partitions": stream.state_partitions,
        "state_schema": state_rows_ddl(fold),
        "source": stream.source,
        "key": fold.keys.text(),
        "output_mode": fold.output_mode,
        "watermark_delay_ms": stream.watermark_delay // MILLISECOND,
        "timeout": fold.timeout if fold.times_out else None,
        "settings": _settings(stream, fold),
    }


def _settings(stream: Stream, fold: KeyedFold) -> str | None:
    of_fold = {"ttl": fold.ttl, "deduplicate": fold.deduplicate}
    own = {name: value for name, value in of_fold.items() if value is not None}
    for name in own.keys() & stream.settings.keys():
        if stream.settings[name] != own[name]:  # equal if it is handed on to the fold
            said = f"is another one of the fold, {own[name]!r}: call the setting otherwise"
            raise _wrong(stream.name, name, said)
    known = {} if fold.deduplicate is None else {"deduplicate": str(fold.deduplicate)}
    settings = {**stream.settings, **own, **known}
    return settings_text(stream.name, settings) if settings else None
