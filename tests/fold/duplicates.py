"""The duplicates among events, and the values that a key has seen, in plain Python."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from include.fold.definition import KeyedFold
from include.fold.states import KeyState
from tests.bronze import StampedRow
from tests.fold.oracle import NOTHING, Result, admit, by_time_and_whole_row, until

Values = dict[Any, list[tuple[Any, int]]]  # by key: values and when each was folded, in order


class Report(NamedTuple):
    """Rows in which each duplicate is a heartbeat, how many there are, and what is known then."""

    rows: list[StampedRow]
    duplicates: int
    seen: Values


def without_duplicates(
    fold: KeyedFold, rows: Sequence[StampedRow], delay_us: int, since_us: int | None = None
) -> Report:
    """An event is one if its key has folded one of the same values `within` before, or earlier at
    the same instant. Looked up among all that was folded: slow, and easy to believe."""
    if fold.deduplicate is None:
        return Report(list(rows), 0, {})
    until_us, retained = until(rows, delay_us), list(rows)
    numbers = {id(row): number for number, row in enumerate(rows)}
    admitted, _, _ = admit(fold, rows, delay_us, since_us)
    folded: Values = defaultdict(list)
    duplicates = 0
    for row in sorted((r for r in admitted if r.time_us < until_us), key=by_time_and_whole_row):
        value = value_of(fold, row.event)
        own = folded[fold.keys.of(row.event)]
        if any(v == value and row.time_us - at <= within_us(fold) for v, at in own):
            retained[numbers[id(row)]] = row._replace(event=None)
            duplicates += 1
        elif value is not None:
            own.append((value, row.time_us))
    return Report(retained, duplicates, still_known(fold, folded, until_us))


def still_known(fold: KeyedFold, folded: Values, until_us: int) -> Values:
    """The values of which an event from `until_us` on may be a duplicate."""
    known = {
        key: [(value, at) for value, at in own if until_us - at <= within_us(fold)]
        for key, own in folded.items()
    }
    return {key: own for key, own in known.items() if own}


def value_of(fold: KeyedFold, event: Any) -> Any:
    names = fold.deduplicate.names
    values = tuple(getattr(event, name) for name in names)
    if all(value is None for value in values):
        return None
    return values[0] if len(names) == 1 else values


def within_us(fold: KeyedFold) -> int:
    return round(fold.deduplicate.within.total_seconds() * 1_000_000)


def seen_in(states: Iterable[KeyState]) -> Values:
    """The same of an engine's states."""
    return {
        known.key: [(each.by, each.at_us) for each in known.extra[0]]
        for known in states
        if known.extra and known.extra[0]
    }


def without_empty(result: Result) -> Result:
    """Keys of which only values are known have no state or timeout to compare."""
    states: Mapping[Any, Any] = {k: known for k, known in result.states.items() if known != NOTHING}
    return result._replace(states=dict(states))
