"""A function that changes what decimals are reckoned by: no other call reckons by it."""

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal, Inexact, getcontext, localcontext, setcontext
from typing import Annotated, NamedTuple

import pyarrow as pa
import pytest

from include.fold.bucket import derived_keys
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.schemas import event_schema
from tests.bronze import ClockAt, stamp
from tests.fold.local import LocalFold
from tests.refused import failed_call

END = ClockAt(60_000_000)
SMALL = Decimal("0.0000000298023223876953125")  # one of 2**25: exact, by 18 digits


class Share(NamedTuple):
    key: str
    event_time_us: int
    of: int


class Nothing(NamedTuple):
    seen: int


class Made(NamedTuple):
    key: str
    made: Annotated[Decimal, "decimal(38,30)"]


def dividing(change: Callable[[int], None]) -> KeyedFold:
    def divide(key, shares, state):
        for share in shares:
            change(share.of)
            yield Made(key, Decimal(1) / share.of)

    return flat_map_groups_with_state(
        divide, key="key", event=Share, state=Nothing, output=Made, output_mode="append"
    )


def run(fold: KeyedFold, *shares: Share) -> LocalFold:
    engine = LocalFold(fold, delay_us=0)
    for rows in stamp([list(shares), END]):
        engine.run_batch(rows)
    return engine


def few_digits(_: int) -> None:
    getcontext().prec = 6


def rounding_down(_: int) -> None:
    getcontext().rounding = ROUND_DOWN


def trapping(_: int) -> None:
    getcontext().traps[Inexact] = True


def another(_: int) -> None:
    setcontext(Context(prec=28))


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
@pytest.mark.parametrize(
    ("change", "named"),
    [(few_digits, "prec"), (rounding_down, "rounding"), (trapping, "traps"), (another, "prec")],
)
def test_a_function_that_changes_it_for_other_calls_stops_the_stream(change, named, on_error):
    fold = replace(dividing(change), on_error=on_error)
    with failed_call("divide", named):
        run(fold, Share("a", 1, 1))


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
def test_a_function_may_change_it_for_itself(on_error):
    def change(of: int) -> None:
        with localcontext() as context:
            context.prec = 6

    fold = replace(dividing(change), on_error=on_error)
    assert run(fold, Share("a", 1, 2**25)).emitted.rows == [("a", SMALL)]


def test_a_dead_letter_that_left_it_changed_stops_the_stream_though_another_sets_it_back():
    def change(of: int) -> None:
        getcontext().prec = 6
        Decimal(1) / of
        getcontext().prec = 76

    fold = replace(dividing(change), on_error="dead_letter")
    with failed_call("'a'", "divide", "prec"):
        run(fold, Share("a", 1, 0), Share("b", 2, 7))


def by_few_digits(share: Share) -> Decimal:
    getcontext().prec = 6
    return Decimal(share.of)


def keyed(by: Callable[[Share], Decimal]) -> KeyedFold:
    def nothing(key, shares, state):
        state.update(Nothing(1))
        yield from ()

    return flat_map_groups_with_state(
        nothing, key=by, event=Share, state=Nothing, output=Made, output_mode="append"
    )


def test_a_key_function_that_changes_it_stops_the_stream():
    fold, share = keyed(by_few_digits), Share("a", 1, 7)
    events = pa.Table.from_pylist([share._asdict()], event_schema(dividing(few_digits)))
    for call in (lambda: derived_keys(fold, events), lambda: run(fold, share)):
        with failed_call("by_few_digits", "prec"):
            call()
