"""A key of a stream: its state now and in savepoints, what it waits for, and why each row was emitted.

Its events are replayed from bronze in this process, as a recompute would: late ones included. So
what is shown is what bronze makes of the key; where the table says something else, that is said.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from include.fold.admission import NEVER_US
from include.fold.arrow_values import encode
from include.fold.definition import Key, KeyedFold
from include.fold.instants import instant_of, micros_of
from include.fold.records import Column
from include.fold.schemas import state_schema
from include.fold.states import States
from include.fold.timers import TIMERS
from include.lake.paths import Lake
from include.page.key_outputs import ShownOutput, compared_outputs, plain_rows
from include.page.key_replay import KeyEvent, Step, key_events, steps_of
from include.page.key_rows import initial_state, key_of_text, read_events, state_in
from include.plans.plan_recompute import base_text, refuse_before_mapping, settled_until
from include.plans.stream_identity import stream_identity
from include.savepoints.bronze_pin import BronzePin, pin_bronze
from include.savepoints.choose_base import Base, choose_base, clean_savepoints
from include.savepoints.contents import SavepointError
from include.savepoints.identity import StreamIdentity
from include.savepoints.lineage import is_mapped
from include.savepoints.manifest import Savepoint, savepoints_of
from include.settings import Stream
from include.stream_definition import load_definition
from include.text_table import value_text

SHOWN_SAVEPOINTS = 12
SHOWN_STEPS = 200
KEY_DAYS = 7
CLOCKS = ("event_time_us", "ingested_at_us")


@dataclass(frozen=True)
class KeyState:
    """What is kept of the key as of an instant. `state` None: nothing, or only a timeout."""

    until: datetime
    state: str | None
    changed_at: datetime | None
    timeout_at: datetime | None
    timers: str | None
    origin: str = ""
    is_damaged: bool = False  # the savepoint: what it had of the key is not known


@dataclass(frozen=True)
class ShownEvent:
    """An event of the key. `was_late`: a run had passed it when it came."""

    at: datetime
    text: str
    ingested_at: datetime
    was_late: bool


@dataclass(frozen=True, kw_only=True)
class ShownStep:
    """What happened to the key at an instant of the stream's clock."""

    at: datetime
    events: Sequence[ShownEvent]  # none: a timeout, or the end of the state
    state: str | None  # afterwards
    wakes_at: datetime | None  # the next timeout, timer or end of the state
    outputs: Sequence[ShownOutput]
    rejected: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class KeyFigures:
    """All that there is to show of a key: its page, and `./stateful explain`, as text or JSON."""

    stream: str
    names: str  # of the key
    key: str
    now: datetime
    days: int
    base: str
    until: datetime | None  # the replay's end: what the stream has settled
    state: KeyState | None
    savepoints: Sequence[KeyState]
    steps: Sequence[ShownStep]  # the newest first
    hidden: int  # earlier steps in the time, which are not shown
    to: datetime | None  # the last instant of which steps are shown
    emitted: Sequence[ShownOutput]  # in the time, the newest first
    late: int  # events of the replay that came late
    pending: Sequence[ShownEvent]
    unexplained: Sequence[ShownOutput]  # rows of the table that the replay does not emit
    failure: str | None = None


class _Replayed(NamedTuple):
    states: States
    steps: list[Step]  # those of the time that is shown
    settled: list[KeyEvent]
    waiting: list[KeyEvent]


def read_key(
    lake: Lake, stream: Stream, text: str, now: datetime, days: int, to: datetime | None = None
) -> KeyFigures:
    """The figures of a key over the newest `days` of what the stream has settled.

    `to` is the last instant of which steps are shown; None for all. SettingsError for what is no
    key, or has too many events; LakeError without bronze.
    """
    fold, identity = load_definition(stream).fold, stream_identity(lake, stream)
    key, until = key_of_text(fold, text), settled_until(lake, stream.name)
    from_us = micros_of((until or now) - timedelta(days=days))
    # None of another schema of the state: of before a migration.
    schema = identity.state_schema
    savepoints = [sp for sp in savepoints_of(lake, stream.name) if sp.state_schema == schema]
    pin = pin_bronze(lake, stream.source)
    from_us = _replayable_us(identity, pin, savepoints, from_us)
    base, states = _beginning(lake, fold, key, identity, pin, savepoints, from_us)
    refuse_before_mapping(identity, base, instant_of(from_us))
    rows = read_events(pin, fold, key, base.until_us, identity.since_us)
    events = key_events(fold, rows, identity.delay_us)
    ran = _replayed(fold, key, states, events, from_us, None if until is None else micros_of(until))
    outputs, unexplained = compared_outputs(lake, fold, key, ran.steps, from_us)
    count = sum(to is None or step.at_us <= micros_of(to) for step in ran.steps)
    shown = slice(max(count - SHOWN_STEPS, 0), count)
    steps = _shown_steps(fold, ran.steps[shown], outputs[shown])
    return KeyFigures(
        stream=stream.name,
        names=fold.keys.text(),
        key=text,
        now=now,
        days=days,
        base=base_text(base),
        until=until,
        state=None if until is None else _state_at(fold, ran.states.rows(), until),
        savepoints=_through(lake, fold, key, savepoints),
        steps=tuple(reversed(steps)),
        hidden=shown.start,
        to=to,
        emitted=[output for of in reversed(outputs) for output in of],
        late=sum(event.was_late for event in ran.settled),
        pending=_events(fold, ran.waiting),
        unexplained=unexplained,
        failure=ran.steps[-1].failure if ran.steps else None,
    )


def _replayable_us(
    identity: StreamIdentity, pin: BronzePin, savepoints: Sequence[Savepoint], from_us: int
) -> int:
    """From then on; of states that were mapped, from the first savepoint that has them on."""
    if not is_mapped(identity.code):
        return from_us
    clean = clean_savepoints(savepoints, identity, pin)
    return max(from_us, min((savepoint.until_us for savepoint in clean), default=from_us))


def _beginning(
    lake: Lake,
    fold: KeyedFold,
    key: Key,
    identity: StreamIdentity,
    pin: BronzePin,
    savepoints: Sequence[Savepoint],
    from_us: int,
) -> tuple[Base, States]:
    """Where the replay begins, and with what; in the place of a damaged savepoint with one before."""
    whole = list(savepoints)
    while (base := choose_base(whole, identity, pin, from_us)).savepoint is not None:
        try:
            return base, States(fold, state_in(lake, fold, key, base.savepoint))
        except SavepointError:
            whole.remove(base.savepoint)
    if identity.since_us is not None:
        return base, States(fold, initial_state(lake, fold, key, identity.since_us))
    return base, States(fold, state_schema(fold).empty_table())


def _replayed(
    fold: KeyedFold,
    key: Key,
    states: States,
    events: Sequence[KeyEvent],
    from_us: int,
    until_us: int | None,
) -> _Replayed:
    if until_us is None:
        return _Replayed(states, [], [], list(events))
    settled = [event for event in events if event.at_us < until_us]
    steps = [s for s in steps_of(fold, key, states, settled, until_us) if s.at_us >= from_us]
    return _Replayed(states, steps, settled, [e for e in events if e.at_us >= until_us])


def _through(
    lake: Lake, fold: KeyedFold, key: Key, savepoints: Sequence[Savepoint]
) -> list[KeyState]:
    """The key in the newest savepoints, the newest first; without a state where it has none."""
    return [
        _in_savepoint(lake, fold, key, each) for each in savepoints[: -SHOWN_SAVEPOINTS - 1 : -1]
    ]


def _in_savepoint(lake: Lake, fold: KeyedFold, key: Key, savepoint: Savepoint) -> KeyState:
    until = instant_of(savepoint.until_us)
    try:
        state = _state_at(fold, state_in(lake, fold, key, savepoint), until)
    except SavepointError:
        state = KeyState(until, None, None, None, None, is_damaged=True)
    return replace(state, origin=savepoint.origin)


def _state_at(fold: KeyedFold, rows: pa.Table, until: datetime) -> KeyState:
    """Of `state_schema(fold)`, one row or none."""
    if not rows.num_rows:
        return KeyState(until, None, None, None, None)
    (row,) = plain_rows(rows)
    changed_us, timeout_us = row["changed_at_us"], row["timeout_at_us"]
    timers = {n: us for n, us in (row.get(TIMERS) or {}).items() if us is not None}
    return KeyState(
        until,
        None if row["state"] is None else value_text(row["state"]),
        None if changed_us is None else instant_of(changed_us),
        _wake(timeout_us),
        value_text({name: instant_of(us) for name, us in timers.items()}) if timers else None,
    )


def _shown_steps(
    fold: KeyedFold, steps: Sequence[Step], outputs: Sequence[Sequence[ShownOutput]]
) -> list[ShownStep]:
    states = _texts(fold.state_columns, [step.state for step in steps])
    return [
        ShownStep(
            at=instant_of(step.at_us),
            events=_events(fold, step.events),
            state=state,
            wakes_at=_wake(step.wakes_at_us),
            outputs=of,
            rejected=[f"{each.error}: {each.message}" for each in step.emitted.rejected],
        )
        for step, state, of in zip(steps, states, outputs, strict=True)
    ]


def _events(fold: KeyedFold, events: Sequence[KeyEvent]) -> list[ShownEvent]:
    """Without the key and the clocks, which are shown beside them."""
    of = [column for column in fold.event_columns if column.name not in (*CLOCKS, *fold.keys.names)]
    positions = [fold.event._fields.index(column.name) for column in of]  # type: ignore[attr-defined]
    records = [tuple(event.event[at] for at in positions) for event in events]
    return [
        ShownEvent(instant_of(e.at_us), text or "", instant_of(e.ingested_at_us), e.was_late)
        for e, text in zip(events, _texts(of, records), strict=True)
    ]


def _texts(columns: Sequence[Column], records: Sequence[Any]) -> list[str | None]:
    """Records as people read them; None where there is none."""
    known = [record for record in records if record is not None]
    values = list(zip(*known, strict=True)) or [()] * len(columns)
    arrays = {c.name: encode(c.shape, of) for c, of in zip(columns, values, strict=True)}
    texts = map(value_text, plain_rows(pa.table(arrays)))
    return [None if record is None else next(texts, "{}") for record in records]


def _wake(at_us: int | None) -> datetime | None:
    return None if at_us is None or at_us == NEVER_US else instant_of(at_us)
