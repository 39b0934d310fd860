"""Looks for input with which a fold does not keep the law: then its table would be chance.

    def test_no_cut_of_the_input_changes_a_result():
        check_fold(FOLD)

The law: what a stream comes to is a function of its events alone. Not of which run they come
in, in which order, what came too late, what the process was before, or when it is run.
"""

from dataclasses import dataclass, replace
from decimal import localcontext
from random import Random
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import Flaky, NoSuchExample
from hypothesis.strategies import SearchStrategy

from include.fold.arithmetic import ARITHMETIC
from include.fold.arrow_values import encode, plain_values
from include.fold.definition import Key, KeyedFold, MigrateState
from include.fold.failures import function_name
from include.fold.records import columns_of
from include.fold.states import States
from include.fold.testing.cases import Case, Drawn, Part, Values, case_of, drawn_cases
from include.fold.testing.restart import restarted
from include.fold.testing.tell import Told, tell
from include.fold.testing.watched import Watched


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
            return self._says(case, [in_order], "fails", [told.error], FAILS)
        if watched.found:
            return self._says(
                case, [in_order], watched.found[0].broken, [], watched.found[0].advice
            )
        for law, parts in ((AGAIN, [in_order]), (ARRIVAL, [whole]), (CUT, case.parts)):
            other = tell(self.fold, parts, begin, restarted)
            if part := told.differs(other):
                first, second = (other, told) if law is CUT else (told, other)
                seen = parts if law is CUT else [in_order]
                return self._says(
                    case, seen, law.broken, _but(first, second, part, law), law.advice
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
        return {}, f"{_name(self.migrate)}, for the states {case.old_states}, {wrong}"

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


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
