"""The settings of a stream as the text that they are pinned by.

Each process has to write the same, or a run would find others than its state was made with: so a set
is written in order, and what Python shows by its address, or not whole, is refused.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any

from include.lake.errors import SettingsError

# Of these Python writes all, and always the same.
TOLD_WHOLE = (bytes, Decimal, date, time, tzinfo, type)


def settings_text(stream: str, settings: Mapping[str, Any]) -> str:
    """JSON, by name; SettingsError for a setting that each process would write otherwise."""
    written = {}
    for name, value in settings.items():
        try:
            written[name] = _plain(value)
        except TypeError as error:
            raise SettingsError(
                f"stream {stream}: settings= {name} cannot be pinned: {error}; give texts, numbers, "
                "times, and lists, dicts and sets of them",
                subject=name,
            ) from error
    return json.dumps(written, sort_keys=True)


def _plain(value: Any) -> Any:
    """What JSON keeps all of; TypeError where there is no such thing."""
    if isinstance(value, Enum):
        return [str(value), _plain(value.value)]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, TOLD_WHOLE):
        return repr(value)
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, set | frozenset):
        return sorted(map(json.dumps, map(_plain, value)))
    if isinstance(value, dict):  # with its order, and whether a key is 2 or "2"
        return [[_plain(key), _plain(of)] for key, of in value.items()]
    if is_dataclass(value):
        parts = {of.name: _plain(getattr(value, of.name)) for of in fields(value)}
        return [type(value).__name__, parts]
    raise TypeError(f"{value!r} is nothing that each process writes alike")
