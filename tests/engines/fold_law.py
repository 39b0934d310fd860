"""The fold law of a stream that has no model but its own function: to whoever draws its input."""

from tests.engines.plain_operator import replay
from tests.engines.test_live_law import live
from tests.fold.arrivals import came_to, delay_us, engine_for, run
from tests.fold.oracle import admit, calls_of, expected, until


def hold_engines_to_oracle(fold, arrived, killed):
    """The live and the local engine; the live one is killed as `killed` says."""
    oracle = expected(fold, calls_of(fold), arrived.rows(), delay_us(fold))
    assert came_to(fold, live(fold, arrived, killed)) == oracle
    engine = run(engine_for(fold, arrived.buckets), arrived.batches())
    assert came_to(fold, engine) == oracle


def hold_parts_to_whole(fold, arrived, split_us):
    """A replay in two parts, the second from the states of the first."""
    rows, _, _ = admit(fold, arrived.rows(), delay_us(fold))
    end_us = until(arrived.rows(), delay_us(fold))
    split_us = min(split_us, end_us)
    first = replay(fold, rows, split_us, {})
    second = replay(fold, [r for r in rows if r.time_us >= split_us], end_us, first.states)
    whole = replay(fold, rows, end_us, {})
    assert second.states == whole.states
    if fold.output_mode == "append":
        assert first.emitted + second.emitted == whole.emitted
