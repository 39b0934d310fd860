"""Definitions of streams: what they may declare, and the errors for what they may not."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Annotated, NamedTuple

import pytest

from include.fold.definition import (
    Deduplicate,
    KeyedFold,
    flat_map_groups_with_state,
    map_groups_with_state,
)
from include.fold.group_state import GroupState
from include.fold.records import DefinitionError, Instant, columns_of
from tests.bronze import stamp
from tests.fold.local import LocalFold
from tests.refused import failed_call, refused


class Event(NamedTuple):
    key: str
    event_time_us: int
    amount: float | None = None


class State(NamedTuple):
    seen: int
    last: tuple[int, ...] = ()


class Output(NamedTuple):
    key: str
    seen: int


def row(key: str, state: State) -> Output:
    return Output(key, state.seen)


def a_fold(function, output_mode="append", **changes) -> KeyedFold:
    settings = {"key": "key", "event": Event, "state": State, "output": Output, "project": row}
    settings |= {"output_mode": output_mode, **changes}
    return flat_map_groups_with_state(function, **settings)


def run(fold: KeyedFold, *batches: list[Event]) -> LocalFold:
    engine = LocalFold(fold, delay_us=0)
    for rows in stamp(batches):
        engine.run_batch(rows)
    return engine


def nothing(key, events, state) -> Iterator[Output]:
    return iter(())


class Mixed(Enum):
    ONE = 1
    TWO = "two"


class Rights(Flag):
    READ = 1
    WRITE = 2


class Nothing(NamedTuple):
    pass


class WithItself(NamedTuple):
    within: "tuple[WithItself, ...]"


def record(kind):
    return NamedTuple("Record", [("key", str), ("seen", kind)])


@pytest.mark.parametrize(
    ("record", "subject"),
    [
        *[(record(kind), "Record.seen") for kind in (set[str], tuple[int, str], dict[float, int])],
        *[(record(kind), "Record.seen") for kind in (int | str, Rights, Mixed)],
        (record(Annotated[Decimal, "decimal(40,2)"]), "Record.seen"),
        (record(tuple[Nothing, ...]), "Record.seen"),
        (WithItself, "WithItself"),
        (dict, "<class 'dict'>"),
        (tuple, "<class 'tuple'>"),
    ],
)
def test_a_record_of_other_types_is_refused(record, subject):
    with refused("wrong_definition", subject=subject):
        columns_of(record)


def by_nothing(event):
    return event.key


def by_amounts(event) -> tuple[float, ...]:
    return (event.amount,)


def named(name, **fields):
    return NamedTuple(name, list(fields.items()))


Keyless = named("Keyless", seen=int)
Reserved = named("Reserved", key=str, emitted_at=int)
TwoCases = named("TwoCases", key=str, total=int, Total=int)  # to Spark names have no case
OtherCase = named("OtherCase", key=str, Emitted_At=int)
RemovedInOtherCase = named("RemovedInOtherCase", key=str, Removed=int)
KeyedState, NoState = named("KeyedState", key=str), named("NoState")


class Far(Enum):
    NEAR = 1
    BEYOND = 2**63


Numbered, LastSeen = named("Numbered", at=Far), named("LastSeen", last=Instant)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"key": "user"}, "user"),
        ({"key": "amount"}, "amount"),
        ({"key": ()}, "key"),
        ({"key": ("key", "key")}, "key"),
        ({"key": ("key", "amount")}, "amount"),
        ({"key": ("key", "user")}, "user"),
        ({"key": by_nothing}, "by_nothing"),
        ({"key": by_amounts}, "by_amounts"),
        ({"key": "amonut"}, "amonut"),
        ({"ttl": timedelta(days=400 * 365_000)}, "ttl"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"timers": ("a",), "timeout": "NoTimeout"}, "timers"),
        *[({"timers": names}, "timers") for names in (["a"], ("a b",), ("class",), ("a", "A"))],
        ({"timers": tuple(f"t{n}" for n in range(33))}, "timers"),
        ({"output": TwoCases}, "TwoCases.Total"),
        ({"output": OtherCase}, "OtherCase.Emitted_At"),
        ({"output": RemovedInOtherCase}, "RemovedInOtherCase.Removed"),
        ({"state": Numbered}, "Numbered.at"),
        ({"output": Reserved}, "Reserved.emitted_at"),
        ({"state": KeyedState}, "KeyedState.key"),
        ({"state": NoState}, "state"),
        ({"output_mode": "update", "project": None}, "project"),
        ({"output_mode": "update", "output": Keyless}, "Keyless.key"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_where_it_is_written(changes, subject):
    with refused("wrong_definition", subject=subject):
        a_fold(nothing, **({"timeout": "EventTimeTimeout"} | changes))


@pytest.mark.parametrize(
    ("by", "within"),
    [
        *[("key", span) for span in (timedelta(0), 3600, timedelta.max)],
        *[(by, timedelta(1)) for by in ((), ("key", "key"), "kye", "amount")],
    ],
)
def test_what_cannot_be_known_again_is_refused_where_it_is_declared(by, within):
    with refused("wrong_definition", subject="deduplicate"):
        a_fold(nothing, deduplicate=Deduplicate(by=by, within=within))


@pytest.mark.parametrize("micros", [253_402_300_800_000_000, -62_135_596_800_000_001])
def test_an_instant_in_a_state_is_one_that_a_table_can_show(micros):
    def look(key, events, state):
        state.update(LastSeen(Instant(micros)))
        return ()

    with failed_call("look", "'a'", str(micros), cause=TypeError):
        run(a_fold(look, state=LastSeen), [Event("a", 1_000)])


def test_map_must_return_exactly_one_output():
    fold = map_groups_with_state(
        lambda key, events, state: [],
        key="key",
        event=Event,
        state=State,
        output=Output,
        output_mode="append",
    )
    with failed_call("'a'", cause=DefinitionError):
        run(fold, [Event("a", 1_000)])


@pytest.mark.parametrize(("name", "value"), [("timeout", "EventTime"), ("output_mode", "Append")])
def test_a_word_that_is_none_of_the_known_is_refused(name, value):
    with refused("wrong_definition", subject=name):
        replace(a_fold(nothing), **{name: value})


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise ArithmeticError("cannot be compared")


class Word(NamedTuple):
    word: str


def positive(key: str, state: State) -> Output:
    if state.seen < 0:
        raise ArithmeticError("below zero")
    return Output(key, state.seen)


@pytest.mark.parametrize(
    ("state", "returned", "cause"),
    [
        (State("many"), 1, TypeError),
        (State(2**63), 2**63, TypeError),
        (State(1), 2, DefinitionError),
        (State(-1), -1, ArithmeticError),
        ((1, (), 3), 1, TypeError),
        (State(0), Unequal(), None),
    ],
)
def test_of_several_keys_the_one_whose_call_left_behind_what_is_refused_is_named(
    state, returned, cause
):
    def count(key, events, group):
        assert list(events)
        group.update(state if key == "b" else State(1))
        return Output(key, returned if key == "b" else 1)

    fold = update_fold(count, state=State, project=positive)
    # The last event of each: beyond all of them lies the clock of the next commit.
    events = [Event(key, at_us) for key in "abc" for at_us in (1_000_000, 2_000_000)]
    with failed_call("'b'", ":02.000", cause=cause):
        run(fold, [*events, Event("z", 9_000_000)])


def update_fold(function, **settings) -> KeyedFold:
    named = {"key": "key", "event": Event, "output": Output, "output_mode": "update"}
    return map_groups_with_state(function, **(named | settings))


@pytest.mark.parametrize("state", [{"word": "a"}, "a", {"a"}])
@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
def test_a_state_that_is_no_record_is_never_taken_by_its_keys_or_letters(state, on_error):
    def note(key, events, group):
        group.update(state)
        return Output(key, 0)

    fold = update_fold(note, state=Word, project=lambda key, _: Output(key, 0))
    events = [Event("b", 1_000_000), Event("z", 9_000_000)]
    if on_error == "stop":
        with failed_call("'b'", repr(state), cause=TypeError):
            run(fold, events)
        return
    dead_letters, _ = run(replace(fold, on_error="dead_letter"), events).dead_letters
    assert dead_letters.key == "b"
    assert (dead_letters.error, repr(state) in dead_letters.message) == ("TypeError", True)


class Means(NamedTuple):
    key: str
    mean: float
    halves: tuple[float, ...]
    by_name: dict[str, float]


class Total(NamedTuple):
    total: float


def means(key: str, state: Total) -> Means:
    half = state.total / 2  # another NaN each time
    return Means(key, state.total, (1.0, state.total / 3), {"half": half})


def add(key: str, events: Iterator[Event], state: GroupState[Total]) -> Means:
    for event in events:
        state.update(Total((state.get.total if state.exists else 0.0) + (event.amount or 0.0)))
    return means(key, state.get)


def lie(key: str, events: Iterator[Event], state: GroupState[Total]) -> Means:
    return add(key, events, state)._replace(halves=(2.0, math.nan))


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
@pytest.mark.parametrize("values", [[math.nan], [1.0, math.inf, -math.inf], [1.0, math.nan, 2.0]])
def test_a_nan_is_the_nan_that_the_projection_makes(values, on_error):
    fold = update_fold(add, state=Total, project=means, output=Means)
    events = [Event("a", at_us, value) for at_us, value in enumerate(values, 1)]
    engine = run(replace(fold, on_error=on_error), events, [Event("z", 60_000_000)])
    assert not engine.dead_letters
    row = Means(*engine.emitted.rows[0])
    assert math.isnan(row.mean)
    assert math.isnan(row.halves[1])


def test_a_row_that_differs_beside_a_nan_is_refused():
    with failed_call(cause=DefinitionError):
        run(
            update_fold(lie, state=Total, project=means, output=Means),
            [Event("a", 1, math.nan), Event("z", 9_000_000)],
        )
