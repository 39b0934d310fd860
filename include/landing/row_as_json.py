"""A row of typed values as text, of which the same values are read again.

What JSON has no value for is an object with one name that no producer gives: `{"<bytes>": "YWxp"}`. As
a text alone it would be taken for one, and be another value than what landed.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from functools import partial

import pyarrow as pa

from include.landing.landed_times import Instant, LocalTime


def row_as_json(row: Mapping[str, object]) -> str:
    """The row as one JSON object."""
    return json.dumps(_as_json(row), ensure_ascii=False)


class Unreadable(str):
    """The text of a value that Python has none for, such as a date after the year 9999."""

    __slots__ = ()


BYTES, KEY = "<bytes>", "<bytes>:"  # in Base64: a value, and how a key begins that is one
UNREADABLE = "<unreadable>"
NOT_FINITE = "<double>"  # nan, inf, -inf
RESTORE: dict[str, Callable[[str], object]] = {
    BYTES: partial(base64.b64decode, validate=True),
    UNREADABLE: Unreadable,
    NOT_FINITE: float,
}


def has_marks(text: str) -> bool:
    """Whether a text may have what `restored` knows."""
    return any(name in text for name in RESTORE)


def restored(value: object) -> object:
    """A value that was read of such a text, as it was before. RecursionError of one too deep."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (known := _known(value)) is not None:
        return known
    members = {name: restored(of) for name, of in value.items()}
    if any(name.startswith(KEY) for name in members):  # a map, which Parquet has in pairs
        return [(_key(name), of) for name, of in members.items()]
    return members


def _known(value: Mapping[str, object]) -> object:
    ((name, text),) = value.items()
    restore = RESTORE.get(name)
    return None if restore is None or not isinstance(text, str) else _or_none(restore, text)


def _key(name: str) -> object:
    known = _or_none(RESTORE[BYTES], name.removeprefix(KEY)) if name.startswith(KEY) else None
    return name if known is None else known


def _or_none(restore: Callable[[str], object], text: str) -> object:
    """None: it is none of ours, but what somebody has corrected, or has landed so."""
    try:
        return restore(text)
    except ValueError:
        return None


def _key_as_json(key: object) -> str:
    if isinstance(key, bytes):
        return f"{KEY}{base64.b64encode(key).decode()}"
    return str(_as_json(key))


def _as_json(value: object) -> object:
    if isinstance(value, Instant | LocalTime):
        zone = "Z" if isinstance(value, Instant) else ""
        return f"{pa.scalar(value.micros, pa.timestamp('us')).cast(pa.string()).as_py()}{zone}"
    if isinstance(value, bytes):
        return {BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Unreadable):
        return {UNREADABLE: str(value)}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _as_json(of) for name, of in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):  # a map
            return {_key_as_json(key): _as_json(of) for key, of in value}
        return [_as_json(item) for item in value]
    if isinstance(value, Decimal) and _is_double(value):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {NOT_FINITE: str(value)}
    return value if value is None or type(value) in (str, int, float, bool) else str(value)


def _is_double(value: Decimal) -> bool:
    """Whether JSON's number, which many read as a double, is exactly it."""
    return value.is_finite() and Decimal(repr(float(value))) == value
