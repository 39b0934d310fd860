"""Which landed rows become events: strict types, a time with a zone, no far future.

Plain Python, without Spark. Nothing is guessed: `1.0` is no bigint and a time without
a zone is no instant, because a wrong guess is found only after it has been counted.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from include.fold.admission import MICROSECOND
from include.landing.landed_values import (
    RefusedError,
    UnreadableFileError,
    converter,
    instant_us,
    shown,
)
from include.settings import Field, Source

SHOWN_COLUMNS = 20
DAY_US = timedelta(days=1) // MICROSECOND

Row = Mapping[str, object]


class Event(NamedTuple):
    """An accepted row: its values in the order of `Source.fields`, and its time."""

    values: tuple[object, ...]
    event_time_us: int


# Of a row and of when it came in, in microseconds.
ToEvent = Callable[[Row, int], Event]


def to_event(source: Source, values: Row, ingested_at_us: int) -> Event:
    """The event in a row that came in at `ingested_at_us`; RefusedError says why it is none.

    What the source does not know: `Rescue`. Of many rows: `reader_of_events`.
    """
    return reader_of_events(source)(values, ingested_at_us)


def reader_of_events(source: Source) -> ToEvent:
    """`to_event` of one source, whose types are looked up once."""
    fields = [_reader_of_field(field, source) for field in source.fields]
    time_of = value_at(source.time_field)
    max_future_us = source.max_future // MICROSECOND

    def to_event(values: Row, ingested_at_us: int) -> Event:
        typed = tuple([read(values) for read in fields])
        time = time_of(values)
        if time is None:
            raise RefusedError("missing_field", source.time_field)
        event_time_us = instant_us(source.time_field, time, source.times)
        if event_time_us > ingested_at_us + max_future_us:
            raise RefusedError(
                "future_time",
                f"{source.time_field} is more than {source.max_future} after its ingestion",
            )
        return Event(typed, event_time_us)

    return to_event


def _reader_of_field(field: Field, source: Source) -> Callable[[Row], object]:
    value_of = value_at(field.landed)
    convert = converter(field.type, field.times or source.times)
    name = field.landed

    def read(values: Row) -> object:
        value = value_of(values)
        if value is not None:
            return convert(name, value)
        if field.required:
            raise RefusedError("missing_field", name)
        return None

    return read


def value_at(path: str) -> Callable[[Row], object]:
    """What a row has at a dotted path: under the whole of it as one name, or step by step."""
    if "." not in path:
        return lambda values: values.get(path)
    steps = path.split(".")

    def find(values: Row) -> object:
        if path in values:
            return values[path]
        found: object = values
        for step in steps:
            if not isinstance(found, Mapping):
                return None
            found = found.get(step)
        return found

    return find


def _in_rows(source: Source) -> list[Field]:
    return [field for field in source.fields if not field.from_folder]


def landed_columns(source: Source, columns: list[str]) -> list[str]:
    """Those of a file's columns that are taken, each once, and first the source's time."""
    asked = dict.fromkeys([source.time_field, *(field.landed for field in _in_rows(source))])
    found = (_column_of(path, columns) for path in asked)
    others = [name for name in columns if name not in source.ignored] if source.rescue else []
    return list(dict.fromkeys([name for name in found if name is not None] + others))


def _column_of(path: str, columns: list[str]) -> str | None:
    return next((name for name in (path, path.split(".")[0]) if name in columns), None)


def check_columns(columns: list[str], source: Source, where: str) -> None:
    """UnreadableFileError when a column that rows need is missing, or there twice."""
    required = [source.time_field, *(field.landed for field in _in_rows(source) if field.required)]
    missing = [path for path in required if _column_of(path, columns) is None]
    if missing:
        raise UnreadableFileError(f"{where} without {', '.join(missing)}; {_found(columns)}")
    repeated = _repeated(replace(source, rescue=False), columns)
    if repeated:
        raise UnreadableFileError(f"{where} with {', '.join(repeated)} more than once")
    if unknown := _repeated(source, columns):
        names = ", ".join(map(shown, unknown[:SHOWN_COLUMNS]))
        raise UnreadableFileError(
            f"{where} with {names} more than once, which is no field: call them something else, or "
            f"declare ignored=({names},)"
        )


def _repeated(source: Source, columns: list[str]) -> list[str]:
    counts = Counter(columns)
    return sorted(name for name in landed_columns(source, columns) if counts[name] > 1)


def _found(columns: list[str]) -> str:
    more = f" and {len(columns) - SHOWN_COLUMNS} more" if len(columns) > SHOWN_COLUMNS else ""
    names = ", ".join(shown(name) for name in columns[:SHOWN_COLUMNS])
    return f"columns found: {names or 'none'}{more}"
