"""What decimals are reckoned by in functions."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Annotated, NamedTuple

import pytest

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from tests.bronze import ClockAt, stamp
from tests.fold.local import LocalFold

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


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
def test_a_function_may_change_it_for_itself(on_error):
    def change(of: int) -> None:
        with localcontext() as context:
            context.prec = 6

    fold = replace(dividing(change), on_error=on_error)
    assert run(fold, Share("a", 1, 2**25)).emitted.rows == [("a", SMALL)]
