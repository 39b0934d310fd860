"""One key of a stream: its state, the events it waits for, and why each row was emitted.

Its events are replayed from bronze in this process, late ones included, as a restatement would. Late
events, which the table may lack, are marked.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import chain, count, repeat
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import NEVER_US, instant_of, is_late, micros_of
from include.fold.arrow_values import (
    column_values,
    decode,
    encode,
    outputs_table,
    plain_rows,
    state_schema,
)
from include.fold.bucket import INSTANTS, as_events, event_names, no_events
from include.fold.calls import fold_runs
from include.fold.definition import EMITTED_AT_US, REMOVED, Emitted, Key, KeyedFold, KeyRun
from include.fold.event_order import keys_of, order_events
from include.fold.failures import StateFunctionError, as_json
from include.fold.group_state import TIMERS
from include.fold.records import Column, DefinitionError, Nested
from include.fold.states import States
from include.ingest.bronze_tables import late_fields, with_late_fields
from include.ingest.initial_state import landed_value, read_initial_state
from include.ingest.landed_values import RefusedError
from include.lake.columns import arrow_type, instant_scalar
from include.lake.delta_log import delta_table
from include.lake.errors import SettingsError, wrong_argument
from include.lake.generations import complete_until
from include.lake.multiset import WEIGHT, has_weights, net
from include.lake.paths import Lake
from include.settings import Stream
from include.stream.bronze import BronzeFiles, BronzeVersion, newest_bronze, read_files
from include.stream.manifest import (
    Savepoint,
    StartingSavepoint,
    StreamIdentity,
    choose_starting_savepoint,
    mapped_savepoint,
    savepoints_of,
    states_in,
    valid_savepoints,
)
from include.stream.open_stream import open_stream
from include.stream_definition import load_definition
from include.text_table import value_text

MOST_EVENTS = 20_000  # of a key: they are folded while somebody waits for the page
# In addition to an event's own columns.
ARRIVAL_US, INGESTED_US, OWN_KEY, TAKEN = "_arrival_us", "_ingested_us", "_key", "_weight"


def key_of_text(fold: KeyedFold, text: str) -> Key:
    """Parse a key: a string as it is, None and other types as JSON: `alice`, `17`, `["a", 1]`.

    Raises SettingsError when it is no key of the fold.
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
    """The text that `key_of_text` parses to `key`, a value of an Arrow column."""
    text = as_json(key)
    return str(json.loads(text)) if text.startswith('"') else text


def too_much(what: str) -> SettingsError:
    """The error for a key that takes too long to replay."""
    return SettingsError(
        f"the key has more than {what} since the savepoint before: look at fewer days",
        code="too_much",
        subject="days",
    )


def read_events(
    bronze: BronzeVersion, fold: KeyedFold, key: Key, from_us: int | None, since_us: int | None
) -> pa.Table:
    """The key's events from an instant on, as of `bronze`, with ARRIVAL_US and INGESTED_US.

    Raises SettingsError when there are more than MOST_EVENTS.
    """
    table = delta_table(bronze.path)
    late = late_fields(table, event_names(fold))
    time, files = INSTANTS[fold.time_us], BronzeFiles(table)
    wanted = pc.field("ingested_at") <= instant_scalar(bronze.ingested_at_us)
    wanted &= ~pc.field("is_heartbeat")
    first_us = max((us for us in (from_us, since_us) if us is not None), default=None)
    if first_us is not None:
        wanted &= pc.field(time) >= instant_scalar(first_us)
    # Older rows may have a field that was declared later in `_rescued_data`: then all are read.
    if not fold.keys.is_derived and not {field.name for field in late} & set(fold.keys.names):
        wanted &= _is_key(fold, key)
    columns = {*event_names(fold), "ingested_at", "watermark_before"}
    columns = columns.union(*(field.columns() for field in late))
    if is_weighted := has_weights(table):
        columns.add(WEIGHT)
    too_early = pc.less(files.span(time)[1], -(2**63) if first_us is None else first_us)
    found = [_extra(no_events(fold), *([pa.array([], pa.int64())] * 2))]
    if is_weighted:
        found[0] = found[0].append_column(TAKEN, pa.array([], pa.int32()))
    for batch in read_files(table, files.paths_but(too_early), sorted(columns), wanted=wanted):
        rows = with_late_fields(pa.Table.from_batches([batch]), late)
        instants = (rows[name].cast(pa.int64()) for name in ("watermark_before", "ingested_at"))
        events = _extra(as_events(rows, fold), *instants)
        if is_weighted:
            events = events.append_column(TAKEN, rows[WEIGHT])
        own = _is_key(fold, key, OWN_KEY)
        keyed = events.append_column(OWN_KEY, keys_of(fold, events)).filter(own)
        found.append(keyed.drop_columns([OWN_KEY]))
        if sum(part.num_rows for part in found) > MOST_EVENTS:
            raise too_much(f"{MOST_EVENTS:,} events")
    events = pa.concat_tables(found)
    return net(events, TAKEN, names=no_events(fold).column_names) if is_weighted else events


def _extra(events: pa.Table, arrivals_us: Any, ingested_us: Any) -> pa.Table:
    return events.append_column(ARRIVAL_US, arrivals_us).append_column(INGESTED_US, ingested_us)


def _is_key(fold: KeyedFold, key: Key, *inside: str) -> pc.Expression:
    """True for rows of the key, whose columns are those of `fold.keys` or members of column `inside`."""
    is_struct, values, parts = isinstance(fold.keys.shape, Nested), fold.keys.values(key), []
    for name, shape in fold.keys.parts:
        column = pc.field(*inside, name) if is_struct or not inside else pc.field(*inside)
        value = encode(shape, [values[name]])[0]
        parts.append(column == value if value.is_valid else column.is_null())
    return reduce(and_, parts)


MOST_STEPS = 100_000
KEY_DAYS = 7
CLOCKS = ("event_time_us", "ingested_at_us")


@dataclass(frozen=True)
class ShownEvent:
    """An event of the key. `was_late`: it came behind the watermark."""

    at: datetime  # event time, or ingestion time
    text: str
    ingested_at: datetime
    was_late: bool


@dataclass(frozen=True)
class ShownOutput:
    """A row that was emitted. `is_removal`: one that was removed from an update table."""

    emitted_at: datetime
    text: str
    is_removal: bool = False


@dataclass(frozen=True)
class KeyState:
    """The state of the key; `state` is None where there is none, or only a timeout."""

    state: str | None = None
    changed_at: datetime | None = None
    timeout_at: datetime | None = None
    timers: str | None = None


@dataclass(kw_only=True)
class ShownStep:
    """One call of the function for the key."""

    at: datetime
    events: Sequence[ShownEvent]  # none: a timeout, or the end of the state's ttl
    state: Any  # afterwards; None: there is none
    wakes_at: datetime | None  # the next timeout, timer or end of the state
    outputs: Sequence[ShownOutput] = ()
    dead_letters: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class KeyFigures:
    """The figures of a key, for its page and for `./stateful explain`."""

    stream: str
    names: str  # of the key
    key: str
    now: datetime
    days: int
    start: str  # the starting savepoint, or the beginning
    until: datetime | None  # the end of the replay: the stream is complete until then
    state: KeyState | None
    steps: Sequence[ShownStep]  # of these days, the newest first
    late: int  # number of late events in the replay
    pending: Sequence[ShownEvent]  # not yet complete
    failure: str | None = None


def _shown_events(fold: KeyedFold, events: pa.Table, delay_us: int) -> list[ShownEvent]:
    """Events in the order of the fold; their texts leave out the key and the time."""
    names = [c.name for c in fold.event_columns if c.name not in (*CLOCKS, *fold.keys.names)]
    texts = map(value_text, plain_rows(events.select(names))) if names else repeat("{}")
    extra = (events[name].to_pylist() for name in (fold.time_us, INGESTED_US, ARRIVAL_US))
    shown = []
    for text, at_us, ingested_us, arrival_us in zip(texts, *extra, strict=False):
        can_be_late = arrival_us is not None and not fold.in_processing_time
        was_late = can_be_late and bool(is_late(at_us, arrival_us, delay_us))
        shown.append(ShownEvent(instant_of(at_us), text, instant_of(ingested_us), was_late))
    return shown


def _replayed(
    fold: KeyedFold,
    key: Key,
    states: States,
    events: pa.Table,
    shown: Sequence[ShownEvent],
    from_us: int,
    until_us: int,
) -> tuple[list[ShownStep], str | None]:
    """Return the steps between the two instants, timeouts too, and the error of a function that failed.

    Raises SettingsError after MOST_STEPS, as each timeout may set the next.
    """
    columns = [column_values(column, events[column.name]) for column in fold.event_columns]
    records = list(map(fold.event._make, zip(*columns, strict=True)))  # type: ignore[attr-defined]
    times_us = events[fold.time_us].to_pylist()
    steps: list[ShownStep] = []
    emitted: list[Emitted] = []
    failure = None
    begin, last = 0, bisect_left(times_us, until_us)
    for number in count():
        at_us = min(times_us[begin] if begin < last else NEVER_US, states.wakes_at(key))
        if at_us >= until_us or failure is not None:
            break
        if number == MOST_STEPS:
            raise too_much(f"{MOST_STEPS:,} events and timeouts")
        end = bisect_right(times_us, at_us, begin, last)
        runs = [KeyRun(key, begin, end)] if end > begin else []
        done = Emitted([], [], [])
        try:
            done = fold_runs(fold, states, runs, records, times_us, until_us=at_us + 1)
        except StateFunctionError as error:
            failure = str(error)
        if at_us >= from_us:
            emitted.append(done)
            steps.append(
                ShownStep(
                    at=instant_of(at_us),
                    events=shown[begin:end],
                    state=states.get(key),
                    wakes_at=_wake(states.wakes_at(key)),
                    dead_letters=[f"{each.error}: {each.message}" for each in done.dead_letters],
                )
            )
        begin = end
    texts = _texts(fold.state_columns, [step.state for step in steps])
    for step, text, outputs in zip(steps, texts, _outputs(fold, emitted), strict=True):
        step.state, step.outputs = text, outputs
    return steps, failure


def _outputs(fold: KeyedFold, each: Sequence[Emitted]) -> list[list[ShownOutput]]:
    """The rows of each emission, as text."""
    together = Emitted(
        list(chain.from_iterable(e.rows for e in each)),
        list(chain.from_iterable(e.emitted_at_us for e in each)),
        list(chain.from_iterable(e.removed for e in each)),
    )
    table = outputs_table(fold, together)
    if not table:
        return [[] for _ in each]
    names = [column.name for column in fold.output_columns]
    gone = table[REMOVED].to_pylist() if REMOVED in table.column_names else repeat(False)
    instants = map(instant_of, table[EMITTED_AT_US].to_pylist())
    found = map(ShownOutput, instants, map(value_text, plain_rows(table.select(names))), gone)
    return [[next(found) for _ in e.rows] for e in each]


def read_key(lake: Lake, stream: Stream, text: str, now: datetime, days: int) -> KeyFigures:
    """The figures of a key for the last `days` before the instant the stream is complete until.

    Raises SettingsError when `text` is no key or has too many events, LakeError without bronze.
    """
    fold, identity = load_definition(stream).fold, open_stream(lake, stream).identity
    key, until = key_of_text(fold, text), complete_until(lake, stream.name)
    from_us = micros_of((until or now) - timedelta(days=days))
    schema = identity.state_schema  # those from before a migration have another
    savepoints = [sp for sp in savepoints_of(lake, stream.name) if sp.state_schema == schema]
    bronze = newest_bronze(lake, stream.source)
    from_us = _replayable_us(identity, bronze, savepoints, from_us=from_us)
    start, states = _beginning(
        lake, fold, key, identity=identity, bronze=bronze, savepoints=savepoints, from_us=from_us
    )
    rows = read_events(bronze, fold, key, from_us=start.until_us, since_us=identity.since_us)
    events = order_events(fold, rows).events
    shown = _shown_events(fold, events, identity.delay_us)
    until_us = -NEVER_US if until is None else micros_of(until)
    complete = bisect_left(events[fold.time_us].to_pylist(), until_us)
    steps, failure = _replayed(fold, key, states, events, shown, from_us, until_us)
    return KeyFigures(
        stream=stream.name,
        names=fold.keys.text(),
        key=text,
        now=now,
        days=days,
        start=start.text(),
        until=until,
        state=None if until is None else _state_of(states.rows()),
        steps=steps[::-1],
        late=sum(event.was_late for event in shown[:complete]),
        pending=shown[complete:],
        failure=failure,
    )


def _replayable_us(
    identity: StreamIdentity, bronze: BronzeVersion, savepoints: Sequence[Savepoint], from_us: int
) -> int:
    """Return `from_us`, or when the states were migrated the first savepoint since, if that is later."""
    if mapped_savepoint(identity.code) is None:
        return from_us
    valid = valid_savepoints(savepoints, identity, bronze)
    return max(from_us, min((savepoint.until_us for savepoint in valid), default=from_us))


def _beginning(
    lake: Lake,
    fold: KeyedFold,
    key: Key,
    identity: StreamIdentity,
    bronze: BronzeVersion,
    savepoints: Sequence[Savepoint],
    from_us: int,
) -> tuple[StartingSavepoint, States]:
    """The starting savepoint of the replay, and the key's state in it."""
    wanted, states = _is_key(fold, key, "key"), state_schema(fold)
    start = choose_starting_savepoint(savepoints, identity, bronze, at_most_us=from_us)
    if start.savepoint is not None:
        rows = states_in(lake, start.savepoint).to_table(filter=wanted)
        return start, States(fold, rows.select(states.names).cast(states))
    initial = None
    if identity.since_us is not None:
        initial = read_initial_state(lake, fold.stream, fold, only=wanted)
    return start, States(fold, states.empty_table() if initial is None else initial.states)


def _state_of(rows: pa.Table) -> KeyState:
    if not rows.num_rows:
        return KeyState()
    (row,) = plain_rows(rows)
    changed_us, timeout_us = row["changed_at_us"], row["timeout_at_us"]
    timers = {n: us for n, us in (row.get(TIMERS) or {}).items() if us is not None}
    return KeyState(
        None if row["state"] is None else value_text(row["state"]),
        None if changed_us is None else instant_of(changed_us),
        _wake(timeout_us),
        value_text({name: instant_of(us) for name, us in timers.items()}) if timers else None,
    )


def _texts(columns: Sequence[Column], records: Sequence[Any]) -> list[str | None]:
    """Each record as text; None stays None."""
    known = [record for record in records if record is not None]
    values = list(zip(*known, strict=True)) or [()] * len(columns)
    arrays = {c.name: encode(c.shape, of) for c, of in zip(columns, values, strict=True)}
    texts = map(value_text, plain_rows(pa.table(arrays)))
    return [None if record is None else next(texts, "{}") for record in records]


def _wake(at_us: int | None) -> datetime | None:
    return None if at_us is None or at_us == NEVER_US else instant_of(at_us)


def key_text(f: KeyFigures) -> str:
    """The figures as text: the steps, the newest last, then the state and the pending events."""
    lines = [f"{f.names} {f.key} of {f.stream}, the last {f.days} d, replayed from {f.start}"]
    lines += chain.from_iterable(map(_step_lines, reversed(f.steps)))
    state = "nothing of the stream is complete yet"
    if f.state and f.until:
        state = f"state now {_at(f.until)}  {_retained(f.state)}"
    lines.append(state)
    if f.late:
        lines.append(f"{f.late:,} of its events came late: the table may lack them")
    lines += [f"waits     {_at(each.at)}  {_event(each)}" for each in f.pending]
    return "\n".join([*lines, f"error: {f.failure}"] if f.failure else lines)


def _retained(state: KeyState) -> str:
    timeout = f", times out {_at(state.timeout_at)}" if state.timeout_at else ""
    timers = f", timers {state.timers}" if state.timers else ""
    return f"{state.state or 'none'}{timeout}{timers}"


def _step_lines(step: ShownStep) -> Iterator[str]:
    yield _at(step.at)
    yield from (f"  {_event(each)}" for each in step.events)
    if not step.events:
        yield "  a timeout, or the end of the ttl"
    wakes = f", times out {_at(step.wakes_at)}" if step.wakes_at else ""
    yield f"  -> state {step.state or 'none'}{wakes}"
    yield from (f"  -> row   {each.text}{' removed' * each.is_removal}" for each in step.outputs)
    yield from (f"  -> dead letter: {each}" for each in step.dead_letters)


def _event(event: ShownEvent) -> str:
    late = " (came late)" if event.was_late else ""
    return f"event {event.text}, ingested {_at(event.ingested_at)}{late}"


def _at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S.%f}"
