"""An initial state as a JSON file: {"as_of": ..., "keys": [{"key": ..., "state": {...}}]}.

Plain Python. As strict as admission is: nothing is guessed, cut off or passed over, because
a state that is wrong from the beginning stays wrong.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from include.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND, NEVER_US
from include.fold.arrow_values import decode
from include.fold.definition import KeyedFold
from include.fold.instants import no_such_day
from include.fold.records import Column, DefinitionError
from include.fold.rejected_call import key_text
from include.fold.shapes import Items, Nested, Pairs, Scalar, Shape
from include.fold.states import States
from include.lake.columns import arrow_type
from include.lake.paths import Lake
from include.landing.landed_times import INSTANT, MIN_US
from include.landing.landed_values import converter, refuse_constant
from include.landing.refusals import RefusedError, shown, wrong_type
from include.settings import SettingsError, Times

LOOK = '{"as_of": "2026-03-01T00:00:00Z", "keys": [{"key": ..., "state": {...}}, ...]}'
FINER_THAN_US = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)
REPEATED_KEYS_SHOWN = 5


class FileRow(NamedTuple):
    """One key's state, in the order of the fold's state columns."""

    key: Any
    state: tuple[Any, ...]
    timeout_at_us: int | None


def read_document(lake: Lake, path: str) -> dict[str, Any]:
    """The file as JSON, with its members `as_of` and `keys`; SettingsError if it has others."""
    try:
        with lake.filesystem.open_input_file(lake.path_in_filesystem(path)) as file:
            document = JSON.decode(bytes(file.read()).decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(
            f"initial state {path} cannot be read: {error}",
            code="wrong_initial_state",
            subject=path,
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"initial state {path} is not JSON: {error}; expected {LOOK}",
            code="wrong_initial_state",
            subject=path,
        ) from None
    try:
        _check_members("", document, required=("as_of", "keys"))
        if not isinstance(document["keys"], list):
            raise wrong_type("keys", document["keys"], "a list")
    except RefusedError as refusal:
        raise SettingsError(
            f"initial state {path}: {refusal.reason}; expected {LOOK}",
            code="wrong_initial_state",
            subject=path,
        ) from None
    return dict(document)


def document_fingerprint(document: dict[str, Any]) -> str:
    """Names the content: white space and the order of keys and members do not matter."""
    keys = sorted(_canonical(item) for item in document["keys"])
    content = _canonical([document["as_of"], keys])
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def typed_rows(path: str, document: dict[str, Any], fold: KeyedFold) -> tuple[int, list[FileRow]]:
    """`as_of` in microseconds since 1970, and the rows; SettingsError names the first wrong one."""
    try:
        as_of_us = _instant_us("as_of", document["as_of"])
    except RefusedError as refusal:
        raise SettingsError(
            f"initial state {path}: {refusal.reason}", code="wrong_initial_state", subject=path
        ) from None
    rows: list[FileRow] = []
    for number, item in enumerate(document["keys"], start=1):
        try:
            rows.append(_row(item, as_of_us, fold))
        except RefusedError as refusal:
            where = f"row {number}{_key_of(item)}"
            raise SettingsError(
                f"initial state {path}, {where}: {refusal.reason}",
                code="wrong_initial_state",
                subject=path,
            ) from None
    _refuse_repeated(path, rows)
    return as_of_us, rows


def states_of(rows: Iterable[FileRow], as_of_us: int, fold: KeyedFold) -> States:
    """The rows as states as of that instant."""
    states = States(fold)
    for row in rows:
        timeout_us = NEVER_US if row.timeout_at_us is None else row.timeout_at_us
        states.put(row.key, fold.state._make(row.state), as_of_us, timeout_us)  # type: ignore[attr-defined]
    return states


def _row(item: Any, as_of_us: int, fold: KeyedFold) -> FileRow:
    _check_members("", item, required=("key", "state"), optional=("timeout_at",))
    columns = fold.state_columns
    state = item["state"]
    _check_members("state", state, required=[column.name for column in columns])
    return FileRow(
        landed_value("key", fold.keys.shape, item["key"]),
        tuple(_value(column, state[column.name]) for column in columns),
        _timeout_at_us(item.get("timeout_at"), as_of_us, fold),
    )


def _check_members(
    name: str, value: Any, required: Collection[str], optional: Collection[str] = ()
) -> None:
    if not isinstance(value, dict):
        raise wrong_type(name or "it", value, "an object")
    prefix = f"{name}." if name else ""
    known = [*required, *optional]
    for member in value:
        if member not in known:
            raise RefusedError(
                "unknown_member",
                f"{prefix}{member} is not known: take it out, or spell it as one of "
                f"{', '.join(known)}",
            )
    for member in required:
        if member not in value:
            raise RefusedError("missing_field", f"{prefix}{member} is missing: add it")


def _value(column: Column, value: Any) -> Any:
    return landed_value(f"state.{column.name}", column.shape, value)


def landed_value(name: str, shape: Shape, value: Any) -> Any:
    """What a field of JSON stands for in a record of the stream; RefusedError for what it is not."""
    if value is None:
        if not shape.nullable:
            raise wrong_type(name, value, shape.kind)
        return None
    _check_parts(name, shape, value)
    if isinstance(shape, Items) and isinstance(value, list):
        return tuple(landed_value(f"{name}[{n}]", shape.item, item) for n, item in enumerate(value))
    landed = converter(shape.kind, Times())(name, value)
    if isinstance(shape, Scalar):
        return landed
    try:
        return decode(shape, pa.array([landed], arrow_type(shape.kind)), name)[0]
    except DefinitionError as error:
        raise RefusedError("wrong_type", str(error)) from None


def _check_parts(name: str, shape: Shape, value: Any) -> None:
    """Ingestion passes over what is no member of a struct; here it is a mistake."""
    if value is None:
        return
    if isinstance(shape, Nested):
        _check_members(name, value, required=[part for part, _ in shape.parts])
        for part, of in shape.parts:
            _check_parts(f"{name}.{part}", of, value[part])
    elif isinstance(shape, Items) and isinstance(value, list):
        for n, item in enumerate(value):
            _check_parts(f"{name}[{n}]", shape.item, item)
    elif isinstance(shape, Pairs) and isinstance(value, dict):
        for key, item in value.items():
            _check_parts(f"{name}[{key!r}]", shape.item, item)


def _timeout_at_us(value: Any, as_of_us: int, fold: KeyedFold) -> int | None:
    if value is None:
        return None
    if not fold.times_out:
        raise RefusedError(
            "unknown_member", "the stream has no timeouts (NoTimeout): take timeout_at out"
        )
    micros = _instant_us("timeout_at", value)
    if micros <= as_of_us:
        raise RefusedError(
            "past_time", f"timeout_at is {shown(value)}, but it must be after as_of: give a later"
        )
    return micros


def _instant_us(name: str, value: Any) -> int:
    if not isinstance(value, str) or not INSTANT.fullmatch(value):
        raise wrong_type(name, value, "ISO-8601 with a zone, as 2026-03-01T00:00:00Z")
    # Ingestion cuts such digits off. Here a person wrote them, and can say what is meant.
    if FINER_THAN_US.search(value):
        raise wrong_type(name, value, "a time in whole microseconds")
    try:
        micros = (datetime.fromisoformat(value) - EPOCH) // MICROSECOND
    except ValueError as error:
        why = no_such_day(value) or error
        raise RefusedError("unreadable_time", f"{name} is {shown(value)}: {why}") from None
    if not MIN_US <= micros <= LAST_INSTANT_US:  # in UTC: the zone can take it there
        raise wrong_type(name, value, "a time in the years 1 to 9999")
    return int(micros)


def _refuse_repeated(path: str, rows: Iterable[FileRow]) -> None:
    counts = Counter(row.key for row in rows)
    # As text: parts may be None, and members of an Enum have no order.
    repeated = sorted(key_text(key) for key, count in counts.items() if count > 1)
    refuse_repeated(path, repeated[:REPEATED_KEYS_SHOWN], len(repeated))


def refuse_repeated(path: str, some_keys: Collection[Any], total: int) -> None:
    """SettingsError when `total` keys, and among them `some_keys`, have several rows."""
    if total:
        listed = ", ".join(shown(key) for key in some_keys)
        rest = ", ..." if total > len(some_keys) else ""
        raise SettingsError(
            f"initial state {path} has several rows for {total} of its keys ({listed}{rest}): "
            "leave one row of each",
            code="wrong_initial_state",
            subject=path,
        )


def _key_of(item: Any) -> str:
    return f" (key {shown(item['key'])})" if isinstance(item, dict) and "key" in item else ""


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python would keep the last one.
    for name, count in Counter(name for name, _ in members).items():
        if count > 1:
            raise ValueError(f"an object has {shown(name)} {count} times")
    return dict(members)


JSON = json.JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=_object)
