"""The fold law, held by every engine: whatever arrives, and however it is cut, killed and begun with."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from include.fold.definition import KeyedFold
from include.fold.states import KeyState
from tests.engines.plain_operator import PlainOperator, replay
from tests.fold.arrivals import (
    Arrivals,
    as_key_state,
    came_to,
    dead_letters_in,
    delay_us,
    engine_for,
    run,
    timers_in,
)
from tests.fold.duplicates import seen_in, without_duplicates, without_empty
from tests.fold.oracle import NOTHING, Call, Known, admit, expected, until

# Numbers of batches after which the run is killed before its batch without data.
KILLED = st.frozensets(st.integers(1, 6))


def live(
    fold: KeyedFold,
    arrived: Arrivals,
    killed: frozenset[int],
    since_us: int | None = None,
    initial: Mapping[Any, Known] | None = None,
) -> PlainOperator:
    operator = PlainOperator(fold, delay_us(fold), arrived.buckets, since_us)
    operator.seed([as_key_state(key, known) for key, known in (initial or {}).items()])
    batches = list(arrived.batches())
    for number, batch in enumerate(batches, 1):
        operator.run_batch(batch, number not in killed or number == len(batches))
    return operator


def extra(fold: KeyedFold, states: Mapping[Any, KeyState]) -> tuple[Any, Any]:
    """The values that each key has seen, and its named timers."""
    seen = seen_in(states.values()) if fold.deduplicate else {}
    return seen, timers_in(states.values()) if fold.timers else {}


def hold_engines_to_oracle(
    fold: KeyedFold,
    call: Call,
    arrived: Arrivals,
    killed: frozenset[int],
    since_us: int | None = None,
    initial: Mapping[Any, Known] | None = None,
) -> None:
    """The live and the local engine; the live one is killed as `killed` says."""
    told = without_duplicates(fold, arrived.rows(), delay_us(fold), since_us)
    oracle = expected(fold, call, told.rows, delay_us(fold), since_us, initial)
    known = oracle.states.keys() | told.seen.keys() | oracle.timers.keys()
    local = engine_for(fold, arrived.buckets, since_us, initial)
    for engine in (
        live(fold, arrived, killed, since_us, initial),
        run(local, arrived.batches()),
    ):
        assert without_empty(came_to(fold, engine, initial)) == oracle
        assert extra(fold, engine.states()) == (told.seen, oracle.timers)
        assert engine.duplicates == told.duplicates
        assert engine.states().keys() == known


def hold_parts_to_oracle(fold: KeyedFold, call: Call, arrived: Arrivals, split_us: int) -> None:
    """A replay in two parts: the second begins with the states of the first, and nothing is of both."""
    rows, _, _ = admit(fold, arrived.rows(), delay_us(fold))
    end_us = until(arrived.rows(), delay_us(fold))
    split_us = min(split_us, end_us)
    first = replay(fold, rows, split_us, {})
    second = replay(fold, [row for row in rows if row.time_us >= split_us], end_us, first.stored)

    told = without_duplicates(fold, arrived.rows(), delay_us(fold))
    oracle = expected(fold, call, told.rows, delay_us(fold))
    states = {key: known for key, known in second.states.items() if known != NOTHING}
    assert states == oracle.states
    assert extra(fold, second.stored) == (told.seen, oracle.timers)
    assert first.duplicates + second.duplicates == told.duplicates
    assert dead_letters_in(fold, [*first.dead_letters, *second.dead_letters]) == oracle.dead_letters
    assert all(call.at_us < split_us for call in first.dead_letters)
    assert all(call.at_us >= split_us for call in second.dead_letters)
    if fold.output_mode == "append":
        assert first.emitted + second.emitted == oracle.table
        assert all(at_us < split_us for _, at_us in first.emitted)
        assert all(at_us >= split_us for _, at_us in second.emitted)
