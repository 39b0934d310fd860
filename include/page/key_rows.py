"""What the lake has of one key: its events in bronze, its states in savepoints."""

import json
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.arrow_values import conformed_table, decode, encode
from include.fold.bucket import INSTANTS, as_events, event_names, no_events
from include.fold.dead_letter import as_json
from include.fold.definition import Key, KeyedFold
from include.fold.event_order import keys_of
from include.fold.records import DefinitionError, Nested
from include.fold.schemas import state_schema
from include.lake.columns import arrow_type, instant_scalar
from include.lake.delta_log import delta_table
from include.lake.errors import wrong_argument
from include.lake.paths import Lake
from include.landing.bronze_tables import late_fields, with_late_fields
from include.landing.initial_state import landed_value, read_initial_state
from include.landing.landed_values import RefusedError
from include.savepoints.bronze_pin import BronzeFiles, BronzePin, read_files
from include.savepoints.manifest import Savepoint, SavepointError, states_in
from include.settings import SettingsError

MOST_EVENTS = 20_000  # of a key: they are folded while somebody waits for the page
# Beside an event's own columns.
ARRIVAL_US, INGESTED_US, OWN_KEY = "_arrival_us", "_ingested_us", "_key"


def key_of_text(fold: KeyedFold, text: str) -> Key:
    """The key that a person means: a text as it is, None and anything else as JSON has it.

    SettingsError for what is no key of the fold.
    """
    shape = fold.keys.shape
    is_text = shape.kind == "string" and not (shape.nullable and text == "null")
    try:
        value = landed_value("key", shape, text if is_text else _from_json(text))
        (key,) = decode(shape, pa.array([value], arrow_type(shape.kind)), "key")
    except (RefusedError, DefinitionError) as error:
        said = error.reason if isinstance(error, RefusedError) else error.message
        raise wrong_argument("key", f"no key of {fold.stream}: {said}") from None
    return key


def _from_json(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text  # a date, say


def text_of_key(key: Any) -> str:
    """What `key_of_text` makes `key` of, which is as Arrow has it: exact, where people see less."""
    text = as_json(key)
    return str(json.loads(text)) if text.startswith('"') else text


def too_much(what: str) -> SettingsError:
    """The error for a key that cannot be replayed while somebody waits for it."""
    return SettingsError(
        f"the key has more than {what} since the savepoint before: look at fewer days",
        code="too_much",
        subject="days",
    )


def read_events(
    pin: BronzePin, fold: KeyedFold, key: Key, from_us: int | None, since_us: int | None
) -> pa.Table:
    """The key's events from an instant on, as of `pin`: `event_schema(fold)`, ARRIVAL_US, INGESTED_US.

    SettingsError when there are more than MOST_EVENTS of them.
    """
    table = delta_table(pin.path)
    late = late_fields(table, event_names(fold))
    time, files = INSTANTS[fold.time_us], BronzeFiles(table)
    wanted = ~pc.field("is_clock") & (pc.field("ingested_at") <= instant_scalar(pin.ingested_at_us))
    first_us = max((us for us in (from_us, since_us) if us is not None), default=None)
    if first_us is not None:
        wanted &= pc.field(time) >= instant_scalar(first_us)
    # A column that came later may lie elsewhere in older rows: then all are looked at.
    if not fold.keys.is_derived and not {field.name for field in late} & set(fold.keys.names):
        wanted &= _is_key(fold, key)
    columns = {*event_names(fold), "ingested_at", "arrival_watermark"}
    columns = columns.union(*(field.columns() for field in late))
    too_early = pc.less(files.span(time)[1], -(2**63) if first_us is None else first_us)
    found = [_beside(no_events(fold), *([pa.array([], pa.int64())] * 2))]
    for batch in read_files(table, files.paths_but(too_early), sorted(columns), wanted=wanted):
        rows = with_late_fields(pa.Table.from_batches([batch]), late)
        instants = (rows[name].cast(pa.int64()) for name in ("arrival_watermark", "ingested_at"))
        events = _beside(as_events(rows, fold), *instants)
        own = _is_key(fold, key, OWN_KEY)
        keyed = events.append_column(OWN_KEY, keys_of(fold, events)).filter(own)
        found.append(keyed.drop_columns([OWN_KEY]))
        if sum(part.num_rows for part in found) > MOST_EVENTS:
            raise too_much(f"{MOST_EVENTS:,} events")
    return pa.concat_tables(found)


def _beside(events: pa.Table, arrivals_us: Any, ingested_us: Any) -> pa.Table:
    return events.append_column(ARRIVAL_US, arrivals_us).append_column(INGESTED_US, ingested_us)


def state_in(lake: Lake, fold: KeyedFold, key: Key, savepoint: Savepoint) -> pa.Table:
    """The key's state in a savepoint: `state_schema(fold)`, one row or none.

    SavepointError for one that is damaged.
    """
    try:
        rows = states_in(lake, savepoint).to_table(filter=_is_key(fold, key, "key"))
    except (OSError, pa.ArrowException) as error:
        raise SavepointError(f"savepoint {savepoint.savepoint_id}: {error}") from error
    return conformed_table(rows, state_schema(fold))


def initial_state(lake: Lake, fold: KeyedFold, key: Key) -> pa.Table:
    """What the stream's initial state has of the key: `state_schema(fold)`, one row or none."""
    initial = read_initial_state(lake, fold.stream, fold, only=_is_key(fold, key, "key"))
    return state_schema(fold).empty_table() if initial is None else initial.states


def _is_key(fold: KeyedFold, key: Key, *inside: str) -> pc.Expression:
    """Whether a row is the key's: by columns of it, or by the members of one."""
    is_struct = isinstance(fold.keys.shape, Nested)
    parts = []
    for name, value in _values(fold, key):
        column = pc.field(*inside, name) if is_struct and inside else pc.field(*(inside or (name,)))
        parts.append(_is(column, value))
    return reduce(and_, parts)


def _is(column: pc.Expression, value: pa.Scalar) -> pc.Expression:
    return column == value if value.is_valid else column.is_null()


def _values(fold: KeyedFold, key: Key) -> Sequence[tuple[str, pa.Scalar]]:
    values = fold.keys.values(key)
    return [(name, encode(shape, [values[name]])[0]) for name, shape in fold.keys.parts]
