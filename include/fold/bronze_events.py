"""Rows of bronze as the events of a fold."""

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.bucket import derived_keys
from include.fold.conform import conformed
from include.fold.definition import EVENT_TIME_US, INGESTED_AT_US, KEY, KeyedFold
from include.fold.instants import instant_of
from include.fold.schemas import event_schema

# What ingestion adds to every row, and a record may ask for.
INSTANTS = {EVENT_TIME_US: "event_time", INGESTED_AT_US: "ingested_at"}


def event_names(fold: KeyedFold) -> set[str]:
    """The columns of bronze that the events of `fold` are made of."""
    return {INSTANTS.get(name, name) for name in event_schema(fold).names if name != KEY}


def dates_within(date: pc.Expression, from_us: int | None, until_us: int | None) -> pc.Expression:
    """Which partitions of bronze may have events from one instant on, up to another; None: no bound."""
    within = pc.scalar(True)
    if from_us is not None:
        within &= date >= instant_of(from_us).date()
    if until_us is not None:
        within &= date <= instant_of(until_us).date()
    return within


def as_events(rows: pa.Table, fold: KeyedFold) -> pa.Table:
    """Rows of bronze as `event_schema(fold)` has them."""
    schema = event_schema(fold)
    columns = {
        name: rows[INSTANTS[name]].cast(pa.int64()) if name in INSTANTS else rows[name]
        for name in schema.names
        if name != KEY
    }
    events = {name: conformed(of, schema.field(name).type) for name, of in columns.items()}
    if fold.keys.is_derived:
        events[KEY] = derived_keys(fold, pa.table(events))
    return pa.table(events, schema=schema)
