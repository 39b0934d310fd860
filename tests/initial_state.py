"""Initial states for tests: a fold whose state has all kinds of columns, files and tables of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from include.fold.admission import EPOCH, MICROSECOND
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupStateTimeout
from include.ingest.initial_state import InitialStates, read_initial_state
from include.lake.paths import Lake
from tests.refused import refused

STREAM = "service_health"
AS_OF = datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC)  # a microsecond that a float would lose
AS_OF_TEXT = "2026-03-01T00:00:00.000001Z"
AS_OF_US = (AS_OF - EPOCH) // MICROSECOND


class Event(NamedTuple):
    service: str
    event_time_us: int


class Health(NamedTuple):
    stale: bool
    seen: int
    load: float
    last: tuple[int, ...]
    note: str | None = None


class Output(NamedTuple):
    service: str


def nothing(key, events, state) -> Iterator[Output]:
    return iter(())


FOLD = flat_map_groups_with_state(
    nothing,
    key="service",
    event=Event,
    state=Health,
    output=Output,
    output_mode="append",
    timeout=GroupStateTimeout.EventTimeTimeout,
)
NO_TIMEOUT = replace(FOLD, timeout=GroupStateTimeout.NoTimeout)
FIVE_MINUTES = replace(FOLD, initial_timeout=timedelta(minutes=5))


class ByNumber(NamedTuple):
    device: int
    event_time_us: int


BY_NUMBER = replace(FOLD, event=ByNumber, key="device")
HEALTH = {"stale": False, "seen": 3, "load": 0.5, "last": [1, 2], "note": None}


def a_key(key: Any = "billing", /, timeout_at: str | None = None, **changes: Any) -> dict[str, Any]:
    return {"key": key, "state": HEALTH | changes, "timeout_at": timeout_at}


def write_file(lake: Lake, content: Any) -> Path:
    path = Path(lake.initial_state_file(STREAM))
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def document(*keys: Any, as_of: Any = AS_OF_TEXT) -> dict[str, Any]:
    return {"as_of": as_of, "keys": list(keys)}


INSTANT = pa.timestamp("us", tz="UTC")
STATE = pa.struct(
    [  # in another order than Health's
        ("note", pa.string()),
        ("last", pa.list_(pa.int64())),
        ("seen", pa.int64()),
        ("stale", pa.bool_()),
        ("load", pa.float64()),
    ]
)


class Row(NamedTuple):
    key: Any = "billing"
    state: dict[str, Any] | None = HEALTH
    as_of: Any = AS_OF
    timeout_at: Any = None


def rows_table(*rows: Row, **types: pa.DataType) -> pa.Table:
    types = {"key": pa.string(), "state": STATE, "as_of": INSTANT, "timeout_at": INSTANT} | types
    fields = pa.schema(list(types.items()))
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=fields)


def write_table(lake: Lake, table: pa.Table, **options: Any) -> DeltaTable:
    path = lake.initial_state(STREAM)
    write_deltalake(path, table, **options)
    return DeltaTable(path)


def collected(initial: InitialStates) -> list[tuple[Any, dict[str, Any], int | None]]:
    rows = initial.states.sort_by("key").to_pylist()
    return [(row["key"], row["state"], row["timeout_at_us"]) for row in rows]


def everything_in(lake: Lake) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path(lake.root).rglob("*") if p.is_file()}


def refusal(lake: Lake, fold: KeyedFold = FOLD) -> str:
    """What is said of a wrong initial state; it must name it, and leave the lake as it was."""
    before = everything_in(lake)
    with refused("wrong_initial_state") as raised:
        read_initial_state(lake, STREAM, fold)
    assert everything_in(lake) == before
    assert lake.initial_state(STREAM) in str(raised.value)
    return str(raised.value)
