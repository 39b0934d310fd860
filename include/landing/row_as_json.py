"""A row of typed values as text, of which the same values are read again."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal

import pyarrow as pa

from include.landing.landed_times import Instant, LocalTime


def row_as_json(row: Mapping[str, object]) -> str:
    """The row as one JSON object."""
    return json.dumps(_as_json(row), ensure_ascii=False)


def _as_json(value: object) -> object:
    if isinstance(value, Instant | LocalTime):
        zone = "Z" if isinstance(value, Instant) else ""
        return f"{pa.scalar(value.micros, pa.timestamp('us')).cast(pa.string()).as_py()}{zone}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _as_json(of) for name, of in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):  # a map
            return {str(_as_json(key)): _as_json(of) for key, of in value}
        return [_as_json(item) for item in value]
    if isinstance(value, Decimal) and _is_double(value):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or type(value) in (str, int, float, bool) else str(value)


def _is_double(value: Decimal) -> bool:
    """Whether JSON's number, which many read as a double, is exactly it."""
    return value.is_finite() and Decimal(repr(float(value))) == value
