"""The fold itself: settled events of a bucket, in event-time order, through the state function.

The hot path of the project: it runs once for every event. Measure (`make bench`) before
and after each change.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from spark_jobs.fold.definition import Key, KeyedFold
from spark_jobs.fold.group_state import GroupState
from spark_jobs.fold.records import DefinitionError
from spark_jobs.fold.states import States


class StateFunctionError(RuntimeError):
    """The state function failed, or broke a rule; the message names the function and the key."""


class BrokenInvariantError(RuntimeError):
    """The fold was handed something that must not exist: a row before what it has settled."""


class KeyRun(NamedTuple):
    """The settled events of one key: positions [start, end) of the bucket's ordered events."""

    key: Key
    start: int
    end: int


class Emitted(NamedTuple):
    """What the fold emitted: outputs, and beside each the event time that emitted it.

    In an update stream there is one row per touched key, and `removed` says whether the
    key's state is gone; in an append stream `removed` stays empty.
    """

    rows: list[Any]
    emitted_at_us: list[int]
    removed: list[bool]


def fold_runs(
    fold: KeyedFold,
    states: States,
    runs: Iterable[KeyRun],
    events: Sequence[Any],
    times_us: Sequence[int],
) -> Emitted:
    """Fold `events` into `states`, and return what that emits.

    `events` and `times_us` run side by side; within each run they are ordered by event
    time, ties by the whole row. Raises StateFunctionError.
    """
    fold_run = _fold_each_event if fold.calls_per_event else _fold_all_events
    emitted = Emitted([], [], [])
    group: GroupState[Any] = GroupState(fold.timeout)
    for run in runs:
        try:
            fold_run(fold, states, run, events, times_us, group, emitted)
        except Exception as error:
            raise StateFunctionError(
                f"{_name(fold)} failed for {fold.key} {run.key!r}: {type(error).__name__}: {error}"
            ) from error
    return emitted


def _fold_each_event(
    fold: KeyedFold,
    states: States,
    run: KeyRun,
    events: Sequence[Any],
    times_us: Sequence[int],
    group: GroupState[Any],
    emitted: Emitted,
) -> None:
    function, (key, start, end) = fold.function, run
    rows, emitted_at_us, _ = emitted
    state = states.get(key)
    for position in range(start, end):
        time_us = times_us[position]
        group.begin_call(state, time_us)
        for output in function(key, iter((events[position],)), group):
            rows.append(output)
            emitted_at_us.append(time_us)
        state = group.getOption
    _keep(states, key, state, times_us[end - 1])


def _fold_all_events(
    fold: KeyedFold,
    states: States,
    run: KeyRun,
    events: Sequence[Any],
    times_us: Sequence[int],
    group: GroupState[Any],
    emitted: Emitted,
) -> None:
    key, start, end = run
    last_us = times_us[end - 1]
    group.begin_call(states.get(key), last_us)
    returned = None
    for returned in fold.function(key, iter(events[start:end]), group):  # noqa: B007 only the last counts
        pass
    state = group.getOption
    _keep(states, key, state, last_us)
    row = project(fold, key, state)
    if returned is not None and state is not None and returned != row:
        raise DefinitionError(f"it returned {returned!r}, but project() makes {row!r} of its state")
    emitted.rows.append(row)
    emitted.emitted_at_us.append(last_us)
    emitted.removed.append(state is None)


def project(fold: KeyedFold, key: Key, state: Any) -> Any:
    """The row of an update stream's table for a key; without state, only the key is filled."""
    if fold.project is None:
        raise DefinitionError(f"{_name(fold)} is no update stream: it has no projection")
    if state is not None:
        return fold.project(key, state)
    return tuple(key if column.name == fold.key else None for column in fold.output_columns)


def _keep(states: States, key: Key, state: Any, changed_at_us: int) -> None:
    if state is None:
        states.remove(key)
    else:
        states.put(key, state, changed_at_us)


def _name(fold: KeyedFold) -> str:
    function = getattr(fold.function, "function", fold.function)
    return getattr(function, "__name__", repr(function))
