"""Where a replay pauses to write a savepoint."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.replay_bronze import stops_on_the_way

STEP_US = 10
COUNTS = st.dictionaries(st.integers(-5, 40), st.integers(1, 9), max_size=20)


@given(counts=COUNTS, apart=st.integers(1, 30), until_us=st.integers(0, 450))
def test_each_stop_is_the_first_with_enough_events_since_the_last(counts, apart, until_us):
    stops = stops_on_the_way(counts, STEP_US, apart, until_us)
    assert stops == sorted(set(stops))

    def events(from_us: int, before_us: int) -> int:
        return sum(n for step, n in counts.items() if from_us <= step * STEP_US < before_us)

    first_us = min(counts, default=0) * STEP_US
    for from_us, stop_us in itertools.pairwise([first_us, *stops]):
        assert stop_us % STEP_US == 0
        assert stop_us < until_us
        assert events(from_us, stop_us - STEP_US) < apart <= events(from_us, stop_us)
    # After the last one nothing was worth another before the end.
    last_us = stops[-1] if stops else first_us
    for end_us in range(last_us + STEP_US, until_us, STEP_US):
        assert events(last_us, end_us) < apart
