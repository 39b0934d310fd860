"""The fold's events without those that their key has folded before."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from include.fold.deduplicate import SEEN, Seen, SeenValues
from include.fold.emitted import KeyRun
from include.fold.states import States


class Distinct(NamedTuple):
    """Events without their duplicates, and how many those were."""

    runs: list[KeyRun]
    events: list[Any]
    times_us: list[int]
    duplicates: int


def distinct(
    values: SeenValues,
    states: States,
    runs: Iterable[KeyRun],
    events: Sequence[Any],
    times_us: Sequence[int],
) -> Distinct:
    """The events that are nobody's duplicate. `states` has seen them from here on.

    A key of which none is left has no run.
    """
    kept_runs: list[KeyRun] = []
    kept: list[int] = []
    read = 0
    for run in runs:
        first = len(kept)
        kept += _first_ones(values, states, run, events, times_us)
        read += run.end - run.start
        if len(kept) > first:
            kept_runs.append(KeyRun(run.key, first, len(kept)))
    return Distinct(
        kept_runs,
        [events[position] for position in kept],
        [times_us[position] for position in kept],
        read - len(kept),
    )


def _first_ones(
    values: SeenValues,
    states: States,
    run: KeyRun,
    events: Sequence[Any],
    times_us: Sequence[int],
) -> list[int]:
    """The positions of a key's events that are none's duplicate."""
    seen = {each.by: each.at_us for each in states.beside(SEEN, run.key) or ()}
    first_ones = []
    for position in range(run.start, run.end):
        value, at_us = values.of(events[position]), times_us[position]
        before_us = seen.get(value)
        if before_us is not None and not values.is_over(before_us, at_us):
            continue
        first_ones.append(position)
        if value is not None:
            seen.pop(value, None)  # or it would keep its place: they are in the order of time
            seen[value] = at_us
    if first_ones:
        states.put_beside(SEEN, run.key, tuple(map(Seen._make, seen.items())) or None)
    return first_ones
