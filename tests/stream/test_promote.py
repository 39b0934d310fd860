"""Which Dag runs a promote waits for: against plain arithmetic on dates."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from include.stream.plan_recompute import NEAR, near_dates

START = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
EVERY = {
    "30 * * * *": timedelta(hours=1),
    "*/10 * * * *": timedelta(minutes=10),
    "30 2 * * *": timedelta(days=1),
}


@given(st.sampled_from(sorted(EVERY)), st.integers(-5, (NEAR + 5) * 1440 * 60))
def test_all_settled_intervals_near_the_run_and_not_its_own(schedule, seconds):
    step, settled = EVERY[schedule], START + timedelta(seconds=seconds)
    before = [START - n * step for n in range(1, NEAR + 1)]
    ahead = [START + n * step for n in range(1, NEAR + 1)]
    after = [date for date in ahead if date + step <= settled]
    assert near_dates(schedule, START, settled) == before + after
    assert near_dates(schedule, START, None) == before
