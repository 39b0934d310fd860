"""The streams of a simulation, as the files that a person would deploy, in variants.

    a   counts the rows of a key
    b   the same state, other numbers in the table
    c   looks at one more field of its events
    d   another state, with a `migrate_state` from a's (and b's, and c's)
    e   as a, but fails for rows of the value 3: for streams with on_error="dead_letter"

`oracle.py` says what each must come to. A shape adds fields to the records, which the states keep
something of.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.simulator.kinds import Kind, annotation, classes, named_records, revived
from tests.simulator.oracle import FAILS
from tests.simulator.retained import HELPERS, text_of
from tests.simulator.shapes import FLAT, Shape

KINDS = ("counts", "silences", "counts_per_key")

RECORDS = '''
"""{title}"""
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple
from include.fold.definition import flat_map_groups_with_state
from include.fold.records import Instant

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SETTINGS = {{"ttl": {ttl}{timed}}}

class Color(Enum):
    RED, BLUE = "red", "blue"

class Level(Enum):
    LOW, HIGH = 1, 2

{records}
class Landed(NamedTuple):
    key: str
    event_time_us: int{event}{field}

class Known(NamedTuple):
    n: int{total}{retained}

class Row(NamedTuple):{key_columns}
    what: str
    amount: int{retained}

COMMENTS = {{name: "Of a simulation" for name in Row._fields}}
{key}
{helpers}
def keep(known, n, event):
    return ({steps})

def amount(known):
    return {amount}

def row(key, what, known):
    return Row({key_values}, what, amount(known), *known[{own}:])

def add(known, event):
    {add}
'''
# Named timers: the even ones begin anew with each event, and what fires shows in the count, so
# that its place among all else does.
TIMED = """
SPANS = {spans}

def set_timers(state, at_us):
    for number, minutes in enumerate(SPANS):
        if number % 2 == 0 or f"t{{number}}" not in state.timers:
            state.setTimer(f"t{{number}}", timestampUs=at_us + minutes * 60_000_000)

def timed(known, name):
    return known._replace(n=(known.n * 3 + int(name[1:]) + 1) % 1_000_003)
"""
FIELD = "\n    value: int"
TOTAL = "\n    total: int"
AMOUNTS = {
    "a": "known.n",
    "b": "known.n * 1000",
    "c": "known.n",
    "d": "known.n * 1000 + known.total",
    "e": "known.n",
}
ADD = "n = known.n if known else 0\n    return Known(n + {}, *keep(known, n, event))"
ADDS = {
    "a": ADD.format("1"),
    "b": ADD.format("1"),
    "c": ADD.format("(2 if (event.value or 0) % 2 == 0 else 1)"),
    "d": "n, total = known[:2] if known else (0, 0)\n"
    "    return Known(n + 1, total + (event.value or 0), *keep(known, n, event))",
    "e": f"if event.value == {FAILS}:\n        raise ValueError(event.value)\n    "
    + ADD.format("1"),
}
MIGRATE = """
def migrate_state(old: dict[str, Any]) -> Known:
    return Known(old["n"], old["n"] * 50{retained})
"""
FUNCTIONS = {
    "counts": """
def fold(key, events, state):
    known = state.getOption{on_timer}
    for event in events:
        known = add(known, event){set_timers}
        yield row(key, "count", known)
    state.update(known)

FOLD = flat_map_groups_with_state(
    fold, key=KEY, event=Landed, state=Known, output=Row, output_mode="append", **SETTINGS)
""",
    "silences": """
SILENCE_US = 40 * 60_000_000

def fold(key, events, state):
    if state.hasTimedOut:
        yield row(key, "silent", state.get)
        state.remove()
        return
    known = state.getOption{on_timer}
    for event in events:
        woke, known = known is None, add(known, event){set_timers}
        if woke:
            yield row(key, "woke", known)
    state.update(known)
    state.setTimeoutTimestamp(timestampUs=state.clock_us + SILENCE_US)

FOLD = flat_map_groups_with_state(
    fold, key=KEY, event=Landed, state=Known, output=Row, output_mode="append",
    **{{"timeout": "EventTimeTimeout"}} | SETTINGS)
""",
    "counts_per_key": """
def project(key, known):
    return row(key, "count", known)

def fold(key, events, state):
    known = state.getOption{on_timer}
    for event in events:
        known = add(known, event){set_timers}
    state.update(known)
    yield project(key, known)

FOLD = flat_map_groups_with_state(
    fold, key=KEY, event=Landed, state=Known, output=Row, output_mode="update",
    project=project, **SETTINGS)
""",
}
ON_TIMER = """
    if state.timer is not None:
        if known is None:
            return  # silence has taken it away
        known = timed(known, state.timer)
        state.update(known)
        {said}
        return"""
SAID = {
    "counts": "yield row(key, state.timer, known)",
    "silences": "yield row(key, state.timer, known)\n"
    "        state.setTimeoutTimestamp(timestampUs=state.clock_us + SILENCE_US)",
    "counts_per_key": "yield project(key, known)",
}
# What a key's function makes of a field.
DERIVED = {
    "str": "({0} if {0} is None else {0}.lower())",
    "int": "({0} if {0} is None else {0} % 2)",
}
TITLES = {
    "counts": "How many rows of each key",
    "silences": "Keys that fell silent, and those that woke",
    "counts_per_key": "The rows of each key, updated in place",
}


def stream_file(kind: str, variant: str, shape: Shape = FLAT) -> str:
    """The text of the stream's file."""
    retained, records = shape.retained_kinds, named_records((*shape.fields, *shape.retained_kinds))
    parts = RECORDS.format(
        title=TITLES[kind],
        ttl=f"timedelta(minutes={shape.ttl})" if shape.ttl else None,
        timed=_timed(shape),
        records="\n".join(classes(records)),
        event=_columns("f", shape.fields, records),
        field=FIELD + " | None" * shape.late_value if variant in "cde" else "",
        total=TOTAL if variant == "d" else "",
        retained=_columns("g", retained, records),
        key_columns=_key_columns(shape, records),
        key=_key(shape, records),
        helpers=HELPERS + "".join(_steps(shape, records)),
        steps="".join(f"g{n}(known, n, event.f{of}), " for n, (_, of) in enumerate(shape.retained)),
        key_values="*key" if len(shape.key) > 1 else "key",
        own=2 if variant == "d" else 1,
        amount=AMOUNTS[variant],
        add=ADDS[variant],
    )
    if shape.timers:
        parts += TIMED.format(spans=shape.timers)
    function = FUNCTIONS[kind].format(
        on_timer=ON_TIMER.format(said=SAID[kind]) if shape.timers else "",
        set_timers="\n        set_timers(state, event.event_time_us)" if shape.timers else "",
    )
    return parts + function + (_migration(retained, records) if variant == "d" else "")


Records = Mapping[Kind, str]


def _timed(shape: Shape) -> str:
    """Timers are declared in an order that is not theirs."""
    if not shape.timers:
        return ""
    names = tuple(f"t{number}" for number in reversed(range(len(shape.timers))))
    return f', "timers": {names}, "timeout": "EventTimeTimeout"'


def _columns(letter: str, kinds: Sequence[Kind], records: Records) -> str:
    declared = (annotation(kind, records) for kind in kinds)
    return "".join(f"\n    {letter}{number}: {text}" for number, text in enumerate(declared))


def _key_columns(shape: Shape, records: Records) -> str:
    columns = zip(shape.key_names, shape.key_kinds, strict=True)
    return "".join(f"\n    {name}: {annotation(kind, records)}" for name, kind in columns)


def _steps(shape: Shape, records: Records) -> Iterator[str]:
    for number, ((how, field), kind) in enumerate(
        zip(shape.retained, shape.retained_kinds, strict=True)
    ):
        record = records.get(replace(kind, nullable=False))
        yield text_of(number, how, shape.fields[field], record)


def _migration(retained: Sequence[Kind], records: Records) -> str:
    old = (revived(kind, f'old["g{number}"]', records) for number, kind in enumerate(retained))
    return MIGRATE.format(retained="".join(f", {text}" for text in old))


def _key(shape: Shape, records: Records) -> str:
    """The key: names of fields, or a function of the event."""
    if not (shape.key and shape.derived):
        names = shape.key_names
        return f"KEY = {names if len(names) > 1 else names[0]!r}"
    of = [DERIVED.get(shape.fields[n].name, "{0}").format(f"event.f{n}") for n in shape.key]
    if len(of) == 1:
        returned, made = annotation(shape.key_kinds[0], records), of[0]
    else:
        returned, made = "Derived", f"Derived({', '.join(of)})"
    return f"""
class Derived(NamedTuple):{_key_columns(shape, records)}

def derived(event: Landed) -> {returned}:
    return {made}

KEY = derived
"""
