"""The search for input with which a fold does not keep the law: then its table would be chance.

    def test_no_cut_of_the_input_changes_a_result():
        check_fold(FOLD)

The law: the result of a stream depends on its events alone, not on the run they come in, on the
process that folds them, or on the time of the run.
"""

import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from random import Random
from types import FrameType
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import Flaky, NoSuchExample

from include.fold.admission import NEVER_US
from include.fold.arrow_values import encode
from include.fold.definition import Key, KeyedFold, MigrateState, StateFunction
from include.fold.failures import StateFunctionError, function_name
from include.fold.group_state import GroupState
from include.fold.records import columns_of, nested
from include.fold.states import MigrationError, States, migrated
from include.fold.testing.cases import (
    Case,
    Happened,
    Part,
    Ran,
    Values,
    drawn_cases,
    key_of_row,
    parts_of,
    run,
)


class Fault(NamedTuple):
    """A way to break the law, and the advice against it; `how` names the second of two runs that differ."""

    broken: str
    advice: str
    how: str = ""


AGAIN = Fault(
    "comes to something else each time",
    "Something is left from call to call beside the state: a global, a default argument that is "
    "changed, a cache. Keep all of it in the state. (Or it takes more of an event than its values: "
    "its id().)",
    how="the same again",
)
CUT = Fault(
    "depends on how its input is cut into runs",
    "A run may end after any event, and the next begins with the stored state. Add to the state "
    "event by event, in a loop: nothing per call (no sum, maximum or count of calls).",
    how="with all at once",
)
FAILS = Fault(
    "fails",
    "Such an event stops the stream. Let the function take it; or if there are none, say which "
    "values occur: check_fold(..., values={'field': strategy}).",
)
KEEPS_STATE = Fault(
    "leaves a state that no timeout wakes any more",
    "Each call clears the timeout of its key, so the state stays for ever if no event comes: set it again in "
    "each call, and state.remove() when state.hasTimedOut. If that is meant: check_fold(..., "
    "may_keep=True).",
)


def asks(what: str) -> Fault:
    return Fault(
        f"asks {what}",
        "The next run gets another answer. Take the time from the events, or from state.clock_us; "
        "what is random, from a random.Random(...) that an event seeds.",
    )


class BrokenLawError(AssertionError):
    """The fold's results depend on more than its events. The message has the smallest case."""


def check_fold(
    fold: KeyedFold,
    *,
    values: Values | None = None,
    migrate_state: MigrateState | None = None,
    old_state: type | None = None,
    may_keep: bool = False,
    examples: int = 200,
    seed: int = 0,
) -> None:
    """Raise BrokenLawError if the fold's results depend on how its input is cut into runs.

    `values` has Hypothesis strategies for fields of which only some values occur. With
    `migrate_state`, states begin as those of `old_state`, mapped. `may_keep` allows states that no
    timeout will ever wake. Another `seed` tries other cases.
    """
    if (migrate_state is None) != (old_state is None):
        raise ValueError("migrate_state= and old_state= go together: give both, or neither")
    drawn = drawn_cases(fold, values or {}, old_state)
    check = _Check(fold, migrate_state, may_keep)
    tried = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        smallest = find(drawn, check.fails, settings=tried, random=Random(seed))  # noqa: S311 (to be repeated)
    except NoSuchExample:
        return
    except Flaky:  # the same case, and no problem: that is one, too
        smallest = None
    while smallest and (smaller := next(filter(check.fails, smallest.fewer()), None)):
        smallest = smaller  # Hypothesis takes few steps at once, and an event is many
    raise BrokenLawError((smallest and check.problem_of(smallest)) or check.problem)


@dataclass
class _Check:
    fold: KeyedFold
    migrate: MigrateState | None
    may_keep: bool
    problem: str | None = None  # of the last case that had one

    def fails(self, case: Case) -> bool:
        problem = self.problem_of(case)
        self.problem = problem or self.problem
        return problem is not None

    def problem_of(self, case: Case) -> str | None:
        begin: dict[Key, Any] = {}
        if self.migrate is not None and case.old_states:
            begin, wrong = _migrated(self.fold, self.migrate, case.old_states)
            if wrong is not None:
                name = getattr(self.migrate, "__name__", repr(self.migrate))
                return f"{name}, for the states {case.old_states}, {wrong}"
        parts = parts_of(self.fold, case)
        events, clock_us = [each for part in parts for each in part.events], parts[-1].clock_us
        whole = [Part(events, clock_us)]
        watched = Watched(self.fold.function, self.may_keep)
        with watched.questions():
            results = results_of(replace(self.fold, function=watched), whole, begin)
        if "error" in results:
            return self._says(FAILS, case, whole, results["error"])
        if watched.found:
            return self._says(watched.found[0], case, whole, [])
        for law, given in ((AGAIN, whole), (CUT, parts)):
            other = results_of(self.fold, given, begin)
            if part := next((n for n in other if results.get(n) != other[n]), None):
                first, second = (other, results) if law is CUT else (results, other)
                lines = ["it gives", _part(first, part), law.how, _part(second, part)]
                return self._says(law, case, given if law is CUT else whole, lines)
        return None

    def _says(self, fault: Fault, case: Case, parts: list[Part], what: list[str]) -> str:
        begin = [f"beginning with the states {case.old_states}"] if case.old_states else []
        lines = [*begin, *_called(self.fold, parts), *what]
        name = function_name(self.fold)
        return "\n".join(
            [f"{name} {fault.broken}:", *(f"  {line}" for line in lines), fault.advice]
        )


def _called(fold: KeyedFold, parts: list[Part]) -> Iterator[str]:
    """The input, run by run."""
    has_time = fold.time_us in fold.event._fields  # type: ignore[attr-defined]
    for number, (events, clock_us) in enumerate(parts):
        listed = ", ".join(repr(e) if has_time else f"{e!r} at {us}" for e, us in events)
        until = f" until {clock_us}" if clock_us != max(us for _, us in events) else ""
        yield f"{'and then' if number else 'called'} with [{listed}]{until}"


# Each part of what a stream came to as text, so -0.0 is not 0.0, and True is not 1; or the error alone.
Results = dict[str, list[str]]
WRONG_VALUE = (TypeError, ValueError, OverflowError)


def _part(results: Results, name: str) -> str:
    if "error" in results:
        return f"  it fails: {results['error'][0]}"
    return f"  {name} {', '.join(results[name]) or 'none'}"


def results_of(fold: KeyedFold, parts: Iterable[Part], states: Mapping[Key, Any]) -> Results:
    """Return the results of runs over `parts`, one after the other, beginning with `states`."""
    rows: dict[Any, str] = {}
    dead_letters: list[str] = []
    before: Ran | Mapping[Key, Any] = states
    try:
        for events, clock_us in parts:
            # New ones for each run, as an engine makes them: nothing can hold on to them.
            arriving = [Happened(fold.event._make(e), us) for e, us in events]  # type: ignore[attr-defined]
            before = ran = run(fold, arriving, clock=clock_us, state=before)
            _add_outputs(fold, ran, rows)
            dead_letters += (
                f"{c.cause} of {c.key} at {c.at_us} ({c.error})" for c in ran.dead_letters
            )
    except StateFunctionError as error:
        return {"error": [str(error)]}
    except WRONG_VALUE as error:
        return {"error": [f"{type(error).__name__}: {error}"]}
    wakes = (*ran.timeouts.items(), *ran.timers.items())
    return {
        "outputs": sorted(rows.values()),
        "states": sorted(f"{key!r}: {state!r}" for key, state in ran.states.items()),
        "timeouts": sorted(f"{key!r}: {at}" for key, at in wakes),
        "dead_letters": sorted(dead_letters),
    }


def _add_outputs(fold: KeyedFold, ran: Ran, rows: dict[Any, str]) -> None:
    """Add outputs to the rows of the table: all of an append stream, an update stream's by key."""
    for removed in ran.removed:
        rows.pop(removed, None)
    for row, at_us in zip(ran.outputs, ran.emitted_at_us, strict=True):
        name = len(rows) if fold.output_mode == "append" else key_of_row(fold, row)
        rows[name] = f"{row!r} at {at_us}"


def _migrated(
    fold: KeyedFold, migrate: MigrateState, old_states: dict[Key, Any]
) -> tuple[dict[Key, Any], str | None]:
    """Return the states to begin with, migrated as a rebuild does, and what is wrong with them."""
    columns = columns_of(type(next(iter(old_states.values()))))
    shape = nested(tuple, columns)
    stored = [
        [c.shape.stored(v, c.name) for c, v in zip(columns, old, strict=True)]
        for old in old_states.values()
    ]
    instants = pa.array([0] * len(stored), pa.int64())
    savepoint = pa.record_batch(
        {
            "key": encode(fold.keys.shape, list(old_states)),
            "state": encode(shape, list(map(tuple, stored))),
            "changed_at_us": instants,
            "timeout_at_us": pa.nulls(len(stored), pa.int64()),
        }
    )
    try:
        states, again = (
            {known.key: known.state for known in States(fold, migrated(savepoint, fold, migrate))}
            for _ in range(2)
        )
    except MigrationError as error:
        return {}, f"fails: {error}"
    return states, None if repr(states) == repr(again) else f"gives {states}, {AGAIN.how} {again}"


class Watched:
    """A state function that is watched while it runs; `found` lists the faults."""

    def __init__(self, function: StateFunction, may_keep: bool) -> None:
        self.function = getattr(function, "function", function)  # its name is in messages
        self.found: list[Fault] = []
        self._call = function
        self._may_keep = may_keep
        self._timeouts: dict[Key, int] = {}

    def __call__(self, key: Key, events: Iterator[Any], state: GroupState[Any]) -> Iterator[Any]:
        before = state.getOption
        yield from self._call(key, events, state)
        if self._may_keep:
            return
        had_one = self._timeouts.get(key, NEVER_US) != NEVER_US
        self._timeouts[key] = state.timeout_at_us
        if not state.exists or state.timeout_at_us != NEVER_US or state.timers:
            return
        if had_one and (not state.hasTimedOut or state.getOption == before):
            self.found.append(KEEPS_STATE)

    @contextmanager
    def questions(self) -> Iterator[None]:
        """Watch what is asked of the machine while the body runs."""
        profiler = sys.getprofile()
        sys.setprofile(self._see_call)
        try:
            yield
        finally:
            sys.setprofile(profiler)

    def _see_call(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and (asked := _asked_outside(called)) and not _may_ask(frame):
            self.found.append(asks(asked))


OUTSIDE = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "localtime"},
    "posix": {"urandom", "getpid"},
    "nt": {"urandom", "getpid"},
}
NOW = {"now", "utcnow", "today"}


def _asked_outside(called: Any) -> str | None:
    owner = getattr(called, "__self__", None)
    if owner is random._inst:
        return "the module random"
    if isinstance(owner, type) and issubclass(owner, date) and called.__name__ in NOW:
        return f"{owner.__name__}.{called.__name__}()"
    if called.__name__ in OUTSIDE.get(called.__module__ or "", ()):
        return f"{called.__module__}.{called.__name__}()"
    return None


def _may_ask(frame: FrameType | None) -> bool:
    """True of a log, of Hypothesis, which times garbage collection, and of imports, as Arrow's of pandas."""
    while frame is not None and (name := frame.f_globals.get("__name__", "")) != __name__:
        if name.partition(".")[0] in ("logging", "hypothesis", "importlib"):
            return True
        frame = frame.f_back
    return False
