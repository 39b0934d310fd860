"""The fold itself: settled events of a bucket, in the order of the fold's clock, through the
state function, with the timeouts in between.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from include.fold.arithmetic import arithmetic
from include.fold.calls import Calls
from include.fold.definition import KeyedFold
from include.fold.distinct import distinct
from include.fold.emitted import Emitted, KeyRun
from include.fold.failures import BrokenInvariantError, StateFunctionError, failure, function_text
from include.fold.projection import project
from include.fold.rejecting import RejectingCalls
from include.fold.states import States
from include.fold.timer_calls import RejectingTimerCalls, TimerCalls

__all__ = [
    "BrokenInvariantError",
    "Emitted",
    "KeyRun",
    "StateFunctionError",
    "fold_runs",
    "project",
]


def fold_runs(
    fold: KeyedFold,
    states: States,
    runs: Iterable[KeyRun],
    events: Sequence[Any],
    times_us: Sequence[int],
    until_us: int,
) -> Emitted:
    """Fold `events` into `states`, fire all timeouts before `until_us`, return what that emits.

    `events` and `times_us` run side by side; within each run they are ordered by time, ties
    by the whole row, and all are before `until_us`. Raises StateFunctionError.
    """
    duplicates = 0
    if fold.seen is not None:
        runs, events, times_us, duplicates = distinct(fold.seen, states, runs, events, times_us)
    calls = _way(fold)(fold, states, events, times_us, until_us)
    with arithmetic(function_text(fold)):
        try:
            calls.fold_all(runs)
            # Without events: of keys with some, the timeouts have fired already.
            calls.fold_all(KeyRun(key, 0, 0) for key in states.due(until_us))
        except Exception as error:
            raise failure(fold, calls.key, calls.group, error) from error
    states.forget_seen(until_us)
    return calls.emitted._replace(duplicates=duplicates) if duplicates else calls.emitted


def _way(fold: KeyedFold) -> type[Calls] | type[RejectingCalls]:
    if fold.timers:
        return RejectingTimerCalls if fold.quarantines else TimerCalls
    return RejectingCalls if fold.quarantines else Calls
