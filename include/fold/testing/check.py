"""Looks for input with which a fold does not keep the law: then its table would be chance.

    def test_no_cut_of_the_input_changes_a_result():
        check_fold(FOLD)

The law: what a stream comes to is a function of its events alone. Not of which run they come
in, in which order, what came too late, what the process was before, or when it is run.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from decimal import localcontext
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import Flaky, NoSuchExample
from hypothesis.strategies import SearchStrategy

from include.fold.admission import NEVER_US
from include.fold.arrow_values import encode, plain_values
from include.fold.call_checks import CallChecks
from include.fold.definition import Key, KeyedFold, MigrateState, StateFunction
from include.fold.failures import ARITHMETIC, StateFunctionError, function_name
from include.fold.group_state import GroupState
from include.fold.records import columns_of
from include.fold.states import States
from include.fold.testing.cases import Case, Drawn, Part, Values, case_of, drawn_cases
from include.fold.testing.run import Happened, Ran, key_of_row, run


def restarted(fold: KeyedFold, ran: Ran) -> Ran:
    """The run as the next process finds it: by way of Arrow, whose errors a wrong value raises."""
    states = States(fold)
    for known in ran.known.values():
        states.put(*known)
    found = States(fold, states.rows())
    return replace(ran, known={known.key: known for known in found})


Arriving = tuple[Sequence[Happened], int]  # for one run, and the instant it comes to
WRONG_VALUE = (TypeError, ValueError, OverflowError)


class Told(NamedTuple):
    """Each part as text, so -0.0 is not 0.0, and True is not 1."""

    outputs: list[str]
    states: list[str]
    timeouts: list[str]
    rejected: list[str]
    error: str | None = None  # why it came to nothing

    def differs(self, other: "Told") -> str | None:
        """The first part that is not the same."""
        names = ("error", "outputs", "states", "timeouts", "rejected")
        return next((n for n in names if getattr(self, n) != getattr(other, n)), None)

    def part(self, name: str) -> str:
        """One of its parts, for a message."""
        if self.error is not None:
            return f"it fails: {self.error}"
        return f"{name} {', '.join(getattr(self, name)) or 'none'}"


def tell(
    fold: KeyedFold,
    parts: Iterable[Arriving],
    states: Mapping[Key, Any],
    restart: Callable[[KeyedFold, Ran], Ran] | None = None,
) -> Told:
    """What runs over `parts` come to, one after the other, beginning with `states`."""
    told = Told([], [], [], rejected=[])
    rows: dict[Any, str] = {}
    before: Ran | Mapping[Key, Any] = states
    try:
        for events, clock_us in parts:
            if restart is not None and isinstance(before, Ran):
                before = restart(fold, before)
            # New ones for each run, as an engine makes them: nothing can hold on to them.
            arriving = [Happened(fold.event._make(e), us) for e, us in events]  # type: ignore[attr-defined]
            before = ran = run(fold, arriving, clock=clock_us, state=before)
            _tell_outputs(fold, ran, rows)
            _tell_rejected(ran, told)
    except StateFunctionError as error:
        return told._replace(error=str(error))
    except WRONG_VALUE as error:
        return told._replace(error=f"{type(error).__name__}: {error}")
    told.outputs.extend(sorted(rows.values()))
    _tell_states(ran, told)
    return told


def _tell_outputs(fold: KeyedFold, ran: Ran, rows: dict[Any, str]) -> None:
    """Into the rows of the table: an append stream's all stay, an update stream's by key."""
    checks = CallChecks(fold)
    is_append = fold.output_mode == "append"
    for removed in ran.removed:
        rows.pop(removed, None)
    for row, at_us in zip(ran.outputs, ran.emitted_at_us, strict=True):
        plain = fold.output._make(checks.output(row))  # type: ignore[attr-defined]
        name = len(rows) if is_append else key_of_row(fold, plain)
        rows[name] = f"{plain!r} at {at_us}"


def _tell_rejected(ran: Ran, told: Told) -> None:
    for call in ran.rejected:
        told.rejected.append(f"{call.cause} of {call.key} at {call.at_us} ({call.error})")


def _tell_states(ran: Ran, told: Told) -> None:
    told.rejected.sort()
    known = ((key, each.state) for key, each in ran.known.items() if each.state is not None)
    told.states.extend(sorted(f"{key!r}: {state!r}" for key, state in known))
    told.timeouts.extend(sorted(f"{key!r}: {at}" for key, at in ran.timeouts.items()))
    told.timeouts.extend(sorted(f"{key!r}: {timers}" for key, timers in ran.timers.items()))


OUTSIDE = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "localtime"},
    "posix": {"urandom", "getpid"},
    "nt": {"urandom", "getpid"},
}
NOW = {"now", "utcnow", "today"}
# A line of a log has a time. Hypothesis measures the garbage collection, wherever that comes.
MAY_ASK = {"logging", "hypothesis"}


class Found(NamedTuple):
    """What is wrong, and what to do."""

    broken: str
    advice: str


MEANT = "If that is meant: check_fold(..., may_keep=True)."


def asks(what: str) -> Found:
    return Found(
        f"asks {what}",
        "The next run gets another answer. Take the time from the events, or from state.clock_us; "
        "what is random, from a random.Random(...) that an event seeds.",
    )


READS_TWICE = Found(
    "reads its events twice",
    "An iterator is empty the second time. Read them in one loop, or list them first: events = "
    "list(events).",
)
LOSES_TIMEOUT = Found(
    "loses a timeout",
    "Each call clears the timeout of its key. This one leaves a state without, so that it stays "
    f"for ever if no event comes: set the timeout again in each call. {MEANT}",
)
KEEPS_STATE = Found(
    "leaves a state when its timeout has come",
    "It is as it was, and has no timeout any more, so it stays for ever if no event comes: "
    f"state.remove() when state.hasTimedOut, or set a timeout again. {MEANT}",
)


class Watched:
    """Does what `function` does. `found` says what is wrong with how it does it."""

    def __init__(self, function: StateFunction, may_keep: bool) -> None:
        self.function = getattr(function, "function", function)  # its name is in messages
        self.found: list[Found] = []
        self._call = function
        self._may_keep = may_keep
        self._timeouts: dict[Key, int] = {}

    def __call__(self, key: Key, events: Iterator[Any], state: GroupState[Any]) -> Iterator[Any]:
        before = state.getOption
        with self._no_questions():
            outputs = iter(self._call(key, _Once(events, self.found), state))
        while True:
            # Not at one go: what it yields is looked at while it reads on.
            with self._no_questions():
                output = next(outputs, outputs)
            if output is outputs:
                break
            yield output
        if not self._may_keep:
            self._see_timeout(key, before, state)

    def _see_timeout(self, key: Key, before: Any, state: GroupState[Any]) -> None:
        had_one = self._timeouts.get(key, NEVER_US) != NEVER_US
        self._timeouts[key] = state.timeout_at_us
        if not state.exists or state.timeout_at_us != NEVER_US or state.timers:
            return
        if state.hasTimedOut and state.getOption == before:
            self.found.append(KEEPS_STATE)
        elif had_one and not state.hasTimedOut:
            self.found.append(LOSES_TIMEOUT)

    @contextmanager
    def _no_questions(self) -> Iterator[None]:
        profiler = sys.getprofile()
        sys.setprofile(self._see_call)
        try:
            yield
        finally:
            sys.setprofile(profiler)

    def _see_call(self, frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or not _asks_outside(called):
            return
        if not any(name.partition(".")[0] in MAY_ASK for name in _modules_of(frame)):
            self.found.append(asks(_name(called)))


def _modules_of(frame: FrameType | None) -> Iterator[str]:
    """Of who asks, and of all who called it, up to here: a log's handler may be of any module."""
    while frame is not None and (name := frame.f_globals.get("__name__", "")) != __name__:
        yield name
        frame = frame.f_back


def _asks_outside(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, date):
        return called.__name__ in NOW
    if owner is random._inst:
        return True
    return called.__name__ in OUTSIDE.get(called.__module__ or "", ())


def _name(called: Any) -> str:
    if getattr(called, "__self__", None) is random._inst:
        return "the module random"
    owner = getattr(called, "__self__", None)
    return f"{owner.__name__ if owner is not None else called.__module__}.{called.__name__}()"


class _Once:
    """Events that are to be read once. A second loop begins with a second `iter`."""

    def __init__(self, events: Iterator[Any], found: list[Found]) -> None:
        self._events = events
        self._found = found
        self._given = self._is_read = False

    def __iter__(self) -> "_Once":
        if self._given and self._is_read:
            self._found.append(READS_TWICE)
        return self

    def __next__(self) -> Any:
        try:
            event = next(self._events)
        except StopIteration:
            self._is_read = True
            raise
        self._given = True
        return event


class Law(NamedTuple):
    """What must make no difference: how a result that it made different is told."""

    broken: str
    how: str
    advice: str


AGAIN = Law(
    "comes to something else each time",
    "the same again",
    "Something is left from call to call beside the state: a global, a default argument that is "
    "changed, a cache. Keep all of it in the state. (Or it takes more of an event than its values: "
    "its id().)",
)
ARRIVAL = Law(
    "depends on the order in which events arrive",
    "arriving in another order",
    "Take no more of an event than its values: at one instant events come in the order of those.",
)
CUT = Law(
    "depends on how its input is cut into runs",
    "with all at once",
    "A run may end after any event, and the next begins with the stored state. Add to the state "
    "event by event, in a loop: nothing per call (no sum, maximum or count of calls).",
)
FAILS = (
    "Such an event stops the stream. Let the function take it; or if there are none, say which "
    "values occur: check_fold(..., values={'field': strategy})."
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

    Events are drawn from the types of the record; `values` has Hypothesis strategies for
    fields of which only some values occur. With `migrate_state`, states begin as those of the
    NamedTuple `old_state`, mapped. `may_keep` allows states that no timeout will ever wake.
    The same cases are tried each time; another `seed` tries others.
    """
    if (migrate_state is None) != (old_state is None):
        raise ValueError("migrate_state= and old_state= go together: give both, or neither")
    drawn = drawn_cases(fold, values or {}, old_state)
    _Search(fold, migrate_state, may_keep).through(drawn, examples, seed)


@dataclass
class _Search:
    fold: KeyedFold
    migrate: MigrateState | None
    may_keep: bool
    problem: str | None = None  # of the last case that had one

    def through(self, drawn: SearchStrategy[Drawn], examples: int, seed: int) -> None:
        """Look for a case with a problem; raise it in its smallest form."""

        def has_problem(case: Drawn) -> bool:
            problem = self.problem_of(case_of(self.fold, case))
            self.problem = problem or self.problem
            return problem is not None

        try:
            smallest = find(drawn, has_problem, settings=_settings(examples), random=Random(seed))  # noqa: S311 (to be repeated)
        except NoSuchExample:
            return
        except Flaky:  # the same case, and no problem: that is one, too
            raise BrokenLawError(self.problem) from None
        while smaller := next(filter(has_problem, smallest.fewer()), None):
            smallest = smaller  # Hypothesis takes few steps at once, and an event is many
        raise BrokenLawError(self.problem_of(case_of(self.fold, smallest)) or self.problem)

    def problem_of(self, case: Case) -> str | None:
        """What is wrong with the fold, if this case shows it."""
        begin, wrong = self._migrated(case)
        if wrong is not None:
            return wrong
        watched = Watched(self.fold.function, self.may_keep)
        whole, in_order = case.whole(), case.in_order()
        told = tell(replace(self.fold, function=watched), [in_order], begin)
        if told.error is not None:
            return self._says(case, [in_order], "fails", what=[told.error], advice=FAILS)
        if watched.found:
            return self._says(
                case, [in_order], watched.found[0].broken, what=[], advice=watched.found[0].advice
            )
        for law, parts in ((AGAIN, [in_order]), (ARRIVAL, [whole]), (CUT, case.parts)):
            other = tell(self.fold, parts, begin, restart=restarted)
            if part := told.differs(other):
                first, second = (other, told) if law is CUT else (told, other)
                seen = parts if law is CUT else [in_order]
                return self._says(
                    case, seen, law.broken, _but(first, second, part, law=law), law.advice
                )
        return None

    def _migrated(self, case: Case) -> tuple[dict[Key, Any], str | None]:
        """The states to begin with, and what is wrong with them."""
        if self.migrate is None or not case.old_states:
            return {}, None
        mapped = [_mapped(self.fold, self.migrate, case.old_states) for _ in range(2)]
        (states, wrong), (again, _) = mapped
        if wrong is None and repr(states) != repr(again):
            wrong = f"gives {states}, {AGAIN.how} {again}"
        if wrong is None:
            return states, None
        return {}, f"{_function_name(self.migrate)}, for the states {case.old_states}, {wrong}"

    def _says(
        self, case: Case, parts: list[Part], broken: str, what: list[str], advice: str
    ) -> str:
        begin = [f"beginning with the states {case.old_states}"] if case.old_states else []
        lines = [*begin, *_called(self.fold, parts), *what]
        name = function_name(self.fold)
        return "\n".join([f"{name} {broken}:", *(f"  {line}" for line in lines), advice])


def _called(fold: KeyedFold, parts: list[Part]) -> list[str]:
    """The input, run by run."""
    runs = []
    for events, clock_us in parts:
        has_time = fold.time_us in fold.event._fields  # type: ignore[attr-defined]
        listed = ", ".join(repr(e) if has_time else f"{e!r} at {us}" for e, us in events)
        newest_us = max((us for _, us in events), default=None)
        runs.append(f"[{listed}]" + (f" until {clock_us}" if clock_us != newest_us else ""))
    return [f"called with {runs[0]}", *(f"and then with {run}" for run in runs[1:])]


def _but(first: Told, second: Told, part: str, law: Law) -> list[str]:
    return ["it gives", f"  {first.part(part)}", law.how, f"  {second.part(part)}"]


def _mapped(
    fold: KeyedFold, migrate: MigrateState, old_states: dict[Key, Any]
) -> tuple[dict[Key, Any], str | None]:
    """The new states, or what is wrong with them."""
    states = {}
    for key, old in old_states.items():
        try:
            with localcontext(ARITHMETIC):
                states[key] = migrate(_read_back(old))
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
            return {}, f"fails: {type(error).__name__}: {error}"
        if not isinstance(states[key], fold.state):
            return {}, f"returns {states[key]!r}, and not a {fold.state.__name__}"
        try:
            States(fold).put(key, states[key], 0)
        except TypeError as error:
            return {}, f"returns {states[key]!r}: {error}"
    return states, None


def _read_back(state: Any) -> dict[str, Any]:
    """As a reseed reads it, without the record that it was made by."""
    return {
        column.name: plain_values(encode(column.shape, [column.shape.stored(value, column.name)]))[
            0
        ]
        for column, value in zip(columns_of(type(state)), state, strict=True)
    }


def _function_name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
