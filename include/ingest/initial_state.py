"""A stream's initial state: states of keys as of an instant, in a user's Delta table or JSON file.

Whatever is wrong with it is found before a stream's first run writes anything.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.connectors import ISO
from include.fold.admission import LAST_INSTANT_US, MICROSECOND, instant_of
from include.fold.arrow_values import decode, state_schema
from include.fold.definition import KeyedFold
from include.fold.records import DefinitionError, Shape, SqlType, sql_type
from include.ingest.landed_values import (
    JSON,
    Instant,
    RefusedError,
    converter,
    instant_us,
    shown,
    wrong_type,
)
from include.lake.columns import INSTANT, columns_of, sql_name
from include.lake.delta_log import (
    changes_data,
    delta_table,
    first_line,
    is_of_machine,
    read_actions,
)
from include.lake.errors import SettingsError
from include.lake.paths import Lake, files_of

ROWS_AT_ONCE = 10_000


class InitialStates(NamedTuple):
    """A stream's initial state."""

    as_of_us: int  # microseconds since 1970; events before it are in the states already
    fingerprint: str  # the same for as long as the content is the same
    states: Any  # rows of `state_schema(fold)`, as an engine has them


def read_initial_state(
    lake: Lake, stream: str, fold: KeyedFold, only: pc.Expression | None = None
) -> InitialStates | None:
    """The initial state, checked, or those rows for which `only` holds; None without one."""
    with _given(lake, stream) as given:
        if given is None:
            return None
        as_of_us = given.as_of_us()
        if instant_of(as_of_us) > datetime.now(UTC):
            # Every row until then would be left out, and each run would look well.
            raise RefusedError("future_time", f"as_of {instant_of(as_of_us)} is in the future")
        states = _states(given.rows(fold), as_of_us, fold)
        states = _with_timeouts(states if only is None else states.filter(only), as_of_us, fold)
        return InitialStates(as_of_us, given.fingerprint(None), states)


def read_as_of(lake: Lake, stream: str) -> int | None:
    """The instant of the initial state, in microseconds since 1970; None when there is none."""
    with _given(lake, stream) as given:
        return None if given is None else given.as_of_us()


def read_fingerprint(lake: Lake, stream: str, pinned: str | None = None) -> str | None:
    """A name of the initial state's content, `pinned` while no log denies that; None without one."""
    with _given(lake, stream) as given:
        return None if given is None else given.fingerprint(pinned)


@contextmanager
def _given(lake: Lake, stream: str) -> Iterator["_Table | _File | None"]:
    """The table or file; None without one. Raises SettingsError for whatever is wrong with it."""
    table, file = lake.initial_state(stream), lake.initial_state_file(stream)
    infos = lake.filesystem.get_file_info([lake.path_in_filesystem(p) for p in (table, file)])
    there = [p for p, i in zip((table, file), infos, strict=True) if i.type != fs.FileType.NotFound]
    path = there[0] if there else table
    try:
        if len(there) > 1:
            raise RefusedError("two", f"is also given by {file}: take one of them away")
        if there == [table] and not lake.is_delta_table(table):
            # To pass over it would start the stream from nothing, and nobody would know.
            raise RefusedError("no_table", f"is no Delta table: make it one, or give a file {file}")
        kind = _Table if there == [table] else _File
        yield kind(lake, path) if there else None
    except (RefusedError, DefinitionError) as error:
        raise _wrong(path, getattr(error, "reason", str(error))) from None
    except (DeltaError, OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            raise
        raise _wrong(path, f"it cannot be read: {first_line(error)}") from error


def _wrong(path: str, said: str) -> SettingsError:
    message = f"initial state {path}: {said}"
    return SettingsError(message, code="wrong_initial_state", subject=path)


def _states(rows: pa.Table, as_of_us: int, fold: KeyedFold) -> pa.Table:
    """`key`, `state` and, perhaps, `timeout_at` as given, as rows of `state_schema(fold)`."""
    nothing = pa.nulls(rows.num_rows)
    timeouts = rows["timeout_at"] if "timeout_at" in rows.column_names else nothing
    columns = {
        "key": rows["key"],
        "state": rows["state"],
        "changed_at_us": pa.array([as_of_us] * rows.num_rows, pa.int64()),
        "timeout_at_us": timeouts.cast(INSTANT).cast(pa.int64()),
        **{column.name: nothing for column in fold.extra},
    }
    states = pa.table(columns).cast(state_schema(fold))
    _check_timeouts(states, as_of_us, fold)
    _refuse_repeated(states["key"])
    for batch in states.to_batches(ROWS_AT_ONCE):
        _check_states(batch, fold)
    return states


def _with_timeouts(states: pa.Table, as_of_us: int, fold: KeyedFold) -> pa.Table:
    """The states, with the fold's timeout, from `as_of` on, where a row has none."""
    if fold.initial_timeout is None:
        return states
    timeouts_us = states["timeout_at_us"].fill_null(as_of_us + fold.initial_timeout // MICROSECOND)
    at = states.schema.get_field_index("timeout_at_us")
    return states.set_column(at, states.schema.field(at), timeouts_us)


def _refuse_repeated(keys: pa.ChunkedArray) -> None:
    """Raise RefusedError, with some of them, when keys have several rows."""
    parts = pa.table({"key": keys})
    while any(map(pa.types.is_struct, parts.schema.types)):
        parts = parts.flatten()  # by a struct Arrow does not group
    counts = parts.group_by(parts.column_names).aggregate([([], "count_all")])
    repeated = counts.filter(pc.field("count_all") > 1).drop_columns("count_all").to_pylist()
    if some := sorted(", ".join(map(shown, key.values())) for key in repeated):
        named = "; ".join(some[:5])
        said = f"{len(some)} of its keys have several rows ({named}): leave one of each"
        raise RefusedError("key_twice", said)


def _check_timeouts(states: pa.Table, as_of_us: int, fold: KeyedFold) -> None:
    """Raise RefusedError, with the first such key, for a timeout that it cannot have."""
    at = pc.field("timeout_at_us")
    is_wrong = (at <= as_of_us) | (at > LAST_INSTANT_US) if fold.times_out else at.is_valid()
    for key in states.filter(is_wrong)["key"].to_pylist()[:1]:
        said = "must be after as_of, and before the year 10000"
        if not fold.times_out:
            said = "is for streams with timeouts, and this has none (NoTimeout): take it out"
        raise RefusedError("past_time", f"key {shown(key)}: timeout_at {said}")


def _check_states(rows: pa.RecordBatch, fold: KeyedFold) -> None:
    """Raise RefusedError, with the first such key, for a null or a value of another type."""
    for name, nullable in (("key", fold.keys.shape.nullable), ("state", False)):
        if rows[name].null_count and not nullable:
            raise wrong_type(name, None, "a value in each row")
    try:
        decode(fold.keys.shape, rows["key"], "key")
        decode(fold.state_shape, rows["state"], "state")
    except DefinitionError as error:
        if rows.num_rows == 1:
            said = f"key {shown(rows['key'][0].as_py())}: {error}"
            raise RefusedError("wrong_type", said) from None
        for row in range(rows.num_rows):
            _check_states(rows.slice(row, 1), fold)
        raise


class _Table:
    """A Delta table with the columns `key`, `state`, `as_of` and, perhaps, `timeout_at`."""

    def __init__(self, lake: Lake, path: str) -> None:
        self._lake, self._path = lake, path
        self._log: DeltaTable = delta_table(path)  # as it is now, whatever is committed meanwhile
        self._rows = self._log.to_pyarrow_dataset(filesystem=files_of(path))

    def as_of_us(self) -> int:
        _check_columns({"as_of": "timestamp"}, {"as_of": self._types().get("as_of")})
        column = self._rows.to_table(columns=["as_of"])["as_of"].cast(pa.int64())
        instants_us = pc.unique(column).to_pylist()
        if len(instants_us) != 1 or instants_us[0] is None:
            said = f"as_of must be one instant in all rows, not {len(instants_us)}"
            raise RefusedError("wrong_type", said)
        return instant_us("as_of", Instant(instants_us[0]), ISO)

    def fingerprint(self, pinned: str | None) -> str:
        """The table's id, and the version in which its rows last changed."""
        table_id, version = str(self._log.metadata().id), int(self._log.version())
        pinned_id, _, pinned_version = (pinned or "").rpartition("@")
        while version > 0:
            commit = read_actions(self._lake, self._path, version)  # None when it was cleaned up
            if commit is None and pinned_id == table_id and int(pinned_version) <= version:
                return pinned or ""
            if commit is None or changes_data(commit):
                break
            version -= 1
        return f"{table_id}@{version}"

    def rows(self, fold: KeyedFold) -> pa.Table:
        found = {"timeout_at": "timestamp", **self._types()}
        wanted = {"key": fold.keys.kind, "as_of": "timestamp", "timeout_at": "timestamp"}
        _check_columns(wanted | {f"state.{c.name}": c.kind for c in fold.state_columns}, found)
        return self._rows.to_table()

    def _types(self) -> dict[str, str]:
        """The types of the columns and of the members of `state`, in any order."""
        found: dict[str, str] = {}
        for name, kind in columns_of(self._rows.schema):
            if name == "state" and pa.types.is_struct(kind):
                found |= {f"state.{member.name}": sql_name(member.type) for member in kind}
            else:
                found[name] = sql_name(kind)
        return found


def _check_columns(wanted: Mapping[str, str], found: Mapping[str, str | None]) -> None:
    for name in sorted(wanted.keys() | found.keys()):
        has, expected = found.get(name), wanted.get(name)
        if has != expected:
            said = f"{name} is {has or 'missing'}, expected {expected or 'no such column'}"
            raise RefusedError("wrong_type", said)


class _File:
    """A JSON file: `as_of` and `keys`, each with `key`, `state` and, perhaps, `timeout_at`."""

    def __init__(self, lake: Lake, path: str) -> None:
        with lake.filesystem.open_input_file(lake.path_in_filesystem(path)) as file:
            content = bytes(file.read())
        try:
            self._document = JSON.decode(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise RefusedError("not_json", f"it is not JSON: {error}") from None
        _check_members("", self._document, ("as_of", "keys"))
        self._keys = self._document["keys"]
        if not isinstance(self._keys, list):
            raise wrong_type("keys", self._keys, "a list")

    def as_of_us(self) -> int:
        return instant_us("as_of", self._document["as_of"], ISO)

    def fingerprint(self, pinned: str | None) -> str:
        """A hash of the content, whatever its white space and the order of keys and members."""
        content = _canonical([self._document["as_of"], sorted(map(_canonical, self._keys))])
        return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"

    def rows(self, fold: KeyedFold) -> pa.Table:
        rows = []
        for number, item in enumerate(self._keys, start=1):
            try:
                given = {"timeout_at": None, **item} if isinstance(item, dict) else item
                _check_members("", given, ("key", "state", "timeout_at"))
                if given["state"] is None:
                    raise wrong_type("state", None, "an object")
                key = landed_value("key", fold.keys.shape, given["key"])
                state = landed_value("state", fold.state_shape, given["state"])
                at = given["timeout_at"]
                at = None if at is None else instant_us("timeout_at", at, ISO)
                rows.append({"key": key, "state": state, "timeout_at": at})
            except RefusedError as refusal:
                has_key = isinstance(item, dict) and "key" in item
                named = f" (key {shown(item['key'])})" if has_key else ""
                said = f"row {number}{named}: {refusal.reason}"
                raise RefusedError(refusal.code, said) from None
        own = [state_schema(fold).field(name) for name in ("key", "state")]
        return pa.Table.from_pylist(rows, pa.schema([*own, ("timeout_at", INSTANT)]))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def landed_value(name: str, shape: Shape, value: Any) -> Any:
    """A value of JSON as Arrow takes it; raises RefusedError for one of another shape."""
    if value is None:
        if not shape.nullable:
            raise wrong_type(name, value, shape.kind)
        return None
    _check_parts(name, sql_type(shape.kind), value)
    return converter(shape.kind, ISO)(name, value)


def _check_parts(name: str, kind: SqlType, value: Any) -> None:
    """Raise RefusedError for members that no struct has, which ingestion would ignore."""
    if kind.name == "struct" and value is not None:
        _check_members(f"{name}.", value, kind.names)
        for member, part in zip(kind.names, kind.parts, strict=True):
            _check_parts(f"{name}.{member}", part, value[member])
    elif kind.name == "array" and isinstance(value, list):
        for n, item in enumerate(value):
            _check_parts(f"{name}[{n}]", kind.parts[0], item)
    elif kind.name == "map" and isinstance(value, dict):
        for key, item in value.items():
            _check_parts(f"{name}[{key!r}]", kind.parts[1], item)


def _check_members(prefix: str, value: Any, names: Collection[str]) -> None:
    if not isinstance(value, dict):
        raise wrong_type(prefix.rstrip(".") or "it", value, f"an object of {', '.join(names)}")
    for member in (*value, *names):
        if member not in names or member not in value:
            said = f"{prefix}{member} is missing, or is none of {', '.join(names)}"
            raise RefusedError("unknown_member", said)
