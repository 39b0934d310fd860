"""Rescued columns and refused rows as JSON text, and a field's values read of the former."""

import base64
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from itertools import chain
from typing import TypeGuard

import pyarrow as pa

from include.connectors import ISO, MESSAGE, KafkaTopic
from include.fold.records import SqlType, sql_type
from include.ingest.landed_values import (
    Instant,
    LocalTime,
    RefusedError,
    Row,
    Text,
    converter,
    is_unicode,
    value_at,
    value_of_text,
)
from include.settings import Source, Times


def json_text(row: Row) -> str:
    """A row as JSON: bytes are Base64, times and dates ISO-8601, a map of texts an object."""
    text = json.dumps(_plain(row), ensure_ascii=False)
    # JSON can escape half a character, which no column can store but as an escape.
    return text if is_unicode(text) else json.dumps(json.loads(text))


def _plain(value: object) -> object:
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(of) for name, of in value.items()}
    if _is_map(value):
        pairs = [(_plain(key), _plain(of)) for key, of in value]
        members = {str(key): of for key, of in pairs}
        return members if len(members) == len(pairs) else pairs
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    # JSON's number, which many read as a double, is exactly it.
    if isinstance(value, Decimal) and value.is_finite() and Decimal(repr(float(value))) == value:
        return float(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Instant | LocalTime):  # also of a year that Python has not
        text = str(pa.scalar(value.micros, pa.timestamp("us")).cast(pa.string()).as_py())
        return f"{text}Z" if isinstance(value, Instant) else text
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _is_map(value: object) -> TypeGuard[list[tuple[object, object]]]:
    """As Parquet has it: pairs."""
    return isinstance(value, list) and bool(value) and all(type(of) is tuple for of in value)


class TypedRows:
    """Rows of a format whose values have types, which their text does not tell."""

    def values(self, item: Row) -> Row:
        return item

    def raw(self, item: Row) -> str:
        return json_text(item)


Steps = tuple[str, ...]  # the names that lead to a value of a row


class Rescue:
    """Of one file: values of its rows that are not, or not as a whole, fields of the source."""

    def __init__(self, source: Source) -> None:
        paths = [source.time_field, *(field.landed for field in source.fields), *source.ignored]
        if isinstance(source.connector, KafkaTopic):
            paths.append(MESSAGE)
        # Also as a whole name, which is taken first.
        self._known = {(path,) for path in paths} | {tuple(path.split(".")) for path in paths}
        self._above = {steps[:n] for steps in self._known for n in range(1, len(steps))}
        # Whether a row has known names alone. Quick, as nearly all have.
        self._names = frozenset(steps[0] for steps in self._known if len(steps) == 1)
        self.has_all = self._names.issuperset if source.rescue else lambda row: True
        self.counts: Counter[str] = Counter()  # of each that is no field, its rows

    def unknown(self, row: Row) -> dict[str, list[str]]:
        """The names of values to rescue, with the paths of what is no field."""
        if self.has_all(row):
            return {}
        found = {name: self._unknown((name,), row[name]) for name in row.keys() - self._names}
        return {name: paths for name, paths in found.items() if paths}

    def text(self, row: Row) -> str | None:
        """These values as a JSON object, name to value as landed; None of nothing or nulls."""
        if not (unknown := self.unknown(row)):
            return None
        try:
            text = json_text({name: value for name, value in row.items() if name in unknown})
        except RecursionError:
            raise RefusedError("not_json", "nested too deeply") from None
        self.counts.update(chain(*unknown.values()))
        return text

    def _unknown(self, steps: Steps, value: object) -> list[str]:
        if value is None or steps in self._known:
            return []
        if steps not in self._above or not isinstance(value, dict):
            return [".".join(steps)]
        return [path for name, of in value.items() for path in self._unknown((*steps, name), of)]


def read_rescued(
    kind: str, path: str, texts: Sequence[str | None], times: Times = ISO
) -> list[object]:
    """The field at `path` of what was rescued of rows: null where that is no `kind`.

    A text is read as a cell of CSV is; a time as `times` says, or in ISO-8601, as of Parquet.
    """
    find, parsed = value_at(path), sql_type(kind)
    converters = [converter(kind, each) for each in (times, replace(times, format="iso"))]

    def read(text: str | None) -> object:
        if text is None or (value := find(json.loads(text, parse_float=Decimal))) is None:
            return None
        if type(value) is str and parsed.name != "string":
            value = Text(value)
        for convert in converters:
            try:
                return convert(path, _with_numbers(parsed, value))
            except (RefusedError, RecursionError):
                continue
        return None

    return list(map(read, texts))


def _with_numbers(kind: SqlType, value: object) -> object:
    """Floats that are kept as texts, where they are more digits than a float has: as numbers."""
    if isinstance(value, str) and kind.name in ("float", "double"):
        return value_of_text(kind, "", value)
    if isinstance(value, list) and kind.name == "array":
        return [_with_numbers(kind.parts[0], item) for item in value]
    if isinstance(value, dict) and kind.name == "map":
        return {key: _with_numbers(kind.parts[1], item) for key, item in value.items()}
    if isinstance(value, dict) and kind.name == "struct":
        parts = zip(kind.names, kind.parts, strict=True)
        return {name: _with_numbers(part, value.get(name)) for name, part in parts}
    return value
