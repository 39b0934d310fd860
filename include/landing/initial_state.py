"""A stream's initial state: where it is, what names its content, and the JSON file that it may be.

It is savepoint 0: the states of keys as of an instant, given by a user, as a Delta table or a
JSON file. `spark_jobs/tables/initial_state.py` reads its rows.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND, NEVER_US, no_such_day
from include.fold.arrow_values import decode
from include.fold.definition import KeyedFold
from include.fold.records import DefinitionError, Items, Nested, Pairs, Scalar, Shape
from include.fold.rejecting import key_text
from include.fold.states import States
from include.lake.columns import arrow_type
from include.lake.delta_log import changes_data, delta_table, find_actions, first_line
from include.lake.paths import Lake
from include.landing.landed_values import (
    INSTANT,
    MIN_US,
    RefusedError,
    converter,
    refuse_constant,
    shown,
    wrong_type,
)
from include.settings import SettingsError, Times

LOOK = '{"as_of": "2026-03-01T00:00:00Z", "keys": [{"key": ..., "state": {...}}, ...]}'
FINER_THAN_US = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)
REPEATED_KEYS_SHOWN = 5


class FileRow(NamedTuple):
    """One key's state, in the order of the fold's state columns."""

    key: Any
    state: tuple[Any, ...]
    timeout_at_us: int | None


class InitialStates(NamedTuple):
    """A stream's initial state; its rows are an engine's, of states as of that instant."""

    as_of_us: int  # microseconds since 1970; events before it are in the states already
    fingerprint: str  # the same for as long as the content is the same
    states: Any


def wrong_initial_state(subject: str, message: str) -> SettingsError:
    """The error for a stream's initial state; it is the user's to mend."""
    return SettingsError(message, code="wrong_initial_state", subject=subject)


def read_document(lake: Lake, path: str) -> dict[str, Any]:
    """The file as JSON, with its members `as_of` and `keys`; SettingsError if it has others."""
    try:
        with lake.filesystem.open_input_file(lake.path_in_filesystem(path)) as file:
            document = JSON.decode(bytes(file.read()).decode("utf-8-sig"))
    except OSError as error:
        raise wrong_initial_state(path, f"initial state {path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise wrong_initial_state(
            path, f"initial state {path} is not JSON: {error}; expected {LOOK}"
        ) from None
    try:
        _check_members("", document, required=("as_of", "keys"))
        if not isinstance(document["keys"], list):
            raise wrong_type("keys", document["keys"], "a list")
    except RefusedError as refusal:
        raise wrong_initial_state(
            path, f"initial state {path}: {refusal.reason}; expected {LOOK}"
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
        raise wrong_initial_state(path, f"initial state {path}: {refusal.reason}") from None
    rows: list[FileRow] = []
    for number, item in enumerate(document["keys"], start=1):
        try:
            rows.append(_row(item, as_of_us, fold))
        except RefusedError as refusal:
            where = f"row {number}{_key_of(item)}"
            raise wrong_initial_state(
                path, f"initial state {path}, {where}: {refusal.reason}"
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
        tuple(landed_value(f"state.{c.name}", c.shape, state[c.name]) for c in columns),
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
        raise wrong_initial_state(
            path,
            f"initial state {path} has several rows for {total} of its keys ({listed}{rest}): "
            "leave one row of each",
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


class InitialStatePath(NamedTuple):
    path: str
    is_table: bool


def find_initial_state(lake: Lake, stream: str) -> InitialStatePath | None:
    table, file = lake.initial_state(stream), lake.initial_state_file(stream)
    there = [path for path in (table, file) if _type(lake, path) != fs.FileType.NotFound]
    if len(there) == 2:
        raise wrong_initial_state(
            table, f"there are two initial states, {table} and {file}: take one away"
        )
    if not there:
        return None
    if there == [table] and not lake.is_delta_table(table):
        # To pass over it would start the stream from nothing, and nobody would know.
        raise wrong_initial_state(
            table, f"initial state {table} is no Delta table: make it one, or give a file {file}"
        )
    if there == [file] and _type(lake, file) != fs.FileType.File:
        raise wrong_initial_state(file, f"initial state {file} is a folder: make it one JSON file")
    return InitialStatePath(there[0], is_table=there == [table])


def _type(lake: Lake, path: str) -> fs.FileType:
    return lake.filesystem.get_file_info(lake.path_in_filesystem(path)).type


def read_fingerprint(lake: Lake, stream: str, pinned: str | None = None) -> str | None:
    """What names the content of the stream's initial state; None when there is no initial state.

    `pinned` is the fingerprint of an earlier run, if there was one: Delta deletes a table's
    old commits in time, and what is left of them may then not tell when its rows last
    changed. It is still `pinned` where nothing that is left says otherwise.
    Raises SettingsError when the file or table cannot be read.
    """
    found = find_initial_state(lake, stream)
    if found is None:
        return None
    if not found.is_table:
        return document_fingerprint(read_document(lake, found.path))
    return table_fingerprint(lake, found.path, newest_version(found.path), pinned)


def check_as_of(path: str, as_of_us: int) -> None:
    """SettingsError for an initial state of the future."""
    as_of = EPOCH + as_of_us * MICROSECOND
    if as_of > datetime.now(UTC):
        # Every row until then would be left out, and each run would look well.
        raise wrong_initial_state(
            "as_of", f"initial state {path}: as_of {as_of} is in the future: mend it"
        )


def default_timeout_us(path: str, as_of_us: int, fold: KeyedFold) -> int | None:
    """The timeout of rows that name none; SettingsError when it is no instant."""
    if fold.initial_timeout is None:
        return None
    default_us = as_of_us + fold.initial_timeout // MICROSECOND
    if not as_of_us < default_us <= LAST_INSTANT_US:
        raise wrong_initial_state(
            "as_of",
            f"initial state {path}: as_of is {EPOCH + as_of_us * MICROSECOND}, and the "
            f"stream's initial_timeout of {fold.initial_timeout} after it is no timeout: it must "
            "be after as_of, and not beyond the year 9999",
        )
    return default_us


def newest_version(path: str) -> int:
    """The table's newest version; SettingsError when there is none that can be read."""
    return int(_log(path).version())


def table_fingerprint(lake: Lake, path: str, version: int, pinned: str | None = None) -> str:
    """Names the rows of `version`: the table, and the version in which they last changed.

    OPTIMIZE and VACUUM change no rows. `pinned`: see `read_fingerprint`.
    """
    table_id = str(_log(path).metadata().id)
    while version > 0:
        commit = find_actions(lake, path, version)  # None when Delta has deleted it by now
        if commit is None and pinned is not None and _names_earlier(pinned, table_id, version):
            return pinned
        if commit is None or changes_data(commit):
            break
        version -= 1
    return f"{table_id}@{version}"


def _log(path: str) -> DeltaTable:
    try:
        return delta_table(path)
    except DeltaError as error:
        raise wrong_initial_state(
            path, f"initial state {path} cannot be read as a Delta table: {first_line(error)}"
        ) from error


def _names_earlier(pinned: str, table_id: str, version: int) -> bool:
    pinned_id, _, pinned_version = pinned.rpartition("@")
    return pinned_id == table_id and int(pinned_version) <= version
