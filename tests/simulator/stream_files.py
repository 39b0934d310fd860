"""The streams of a simulation, as the files that a person would deploy, in variants.

    a   counts the rows of a key
    b   the same state, other numbers in the table
    c   looks at one more field of its events
    d   another state, with a `migrate_state` from a's (and b's, and c's)
    e   as a, but fails for rows of the value 3: for streams with on_error="quarantine"

`oracle.py` says what each must come to.
"""

KINDS = ("counts", "silences", "counts_per_key")
VARIANTS = ("a", "b", "c", "d")

RECORDS = '''
"""{title}"""
from typing import Any, NamedTuple
from include.fold.definition import flat_map_groups_with_state

class Landed(NamedTuple):
    key: str
    event_time_us: int{field}

class Known(NamedTuple):
    n: int{total}

class Row(NamedTuple):
    key: str
    what: str
    amount: int

COMMENTS = {{"key": "The key", "what": "What happened", "amount": "How much"}}

def amount(known):
    return {amount}

def add(known, event):
    {add}
'''
FIELD = "\n    value: int"
TOTAL = "\n    total: int"
AMOUNTS = {
    "a": "known.n",
    "b": "known.n * 1000",
    "c": "known.n",
    "d": "known.n * 1000 + known.total",
    "e": "known.n",
}
ADDS = {
    "a": "return Known((known.n if known else 0) + 1)",
    "b": "return Known((known.n if known else 0) + 1)",
    "c": "return Known((known.n if known else 0) + (2 if event.value % 2 == 0 else 1))",
    "d": "known = known or Known(0, 0)\n    return Known(known.n + 1, known.total + event.value)",
    "e": "if event.value == 3:\n        raise ValueError(event.value)\n"
    "    return Known((known.n if known else 0) + 1)",
}
MIGRATE = """
def migrate_state(old: dict[str, Any]) -> Known:
    return Known(old["n"], old["n"] * 50)
"""
FUNCTIONS = {
    "counts": """
def fold(key, events, state):
    known = state.getOption
    for event in events:
        known = add(known, event)
        yield Row(key, "count", amount(known))
    state.update(known)

FOLD = flat_map_groups_with_state(
    fold, key="key", event=Landed, state=Known, output=Row, output_mode="append")
""",
    "silences": """
SILENCE_US = 40 * 60_000_000

def fold(key, events, state):
    if state.hasTimedOut:
        yield Row(key, "silent", amount(state.get))
        state.remove()
        return
    known = state.getOption
    for event in events:
        woke, known = known is None, add(known, event)
        if woke:
            yield Row(key, "woke", amount(known))
    state.update(known)
    state.setTimeoutTimestamp(timestampUs=state.clock_us + SILENCE_US)

FOLD = flat_map_groups_with_state(
    fold, key="key", event=Landed, state=Known, output=Row, output_mode="append",
    timeout="EventTimeTimeout")
""",
    "counts_per_key": """
def project(key, known):
    return Row(key, "count", amount(known))

def fold(key, events, state):
    known = state.getOption
    for event in events:
        known = add(known, event)
    state.update(known)
    yield project(key, known)

FOLD = flat_map_groups_with_state(
    fold, key="key", event=Landed, state=Known, output=Row, output_mode="update",
    project=project)
""",
}
TITLES = {
    "counts": "How many rows of each key",
    "silences": "Keys that fell silent, and those that woke",
    "counts_per_key": "The rows of each key, updated in place",
}


def stream_file(kind: str, variant: str) -> str:
    """The text of the stream's file."""
    records = RECORDS.format(
        title=TITLES[kind],
        field=FIELD if variant in "cde" else "",
        total=TOTAL if variant == "d" else "",
        amount=AMOUNTS[variant],
        add=ADDS[variant],
    )
    return records + FUNCTIONS[kind] + (MIGRATE if variant == "d" else "")
