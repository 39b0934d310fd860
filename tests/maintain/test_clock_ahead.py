"""What maintenance recorded while a machine's clock was ahead, which was set right since, is not of today."""

from datetime import UTC, datetime, timedelta

from include.lake.ops import Measured, record_figures
from include.maintain.check_checkpoint import newest_measured

NOW = datetime.now(UTC)


def test_a_state_that_was_measured_then_is_not_the_newest(lake):
    ahead = Measured(NOW + timedelta(days=400), {"state/0/0": 9}, 1, 0)
    record_figures(lake, "user_counts", None, ahead)
    assert newest_measured(lake, "user_counts") is None
    today = ahead._replace(at=NOW)
    record_figures(lake, "user_counts", None, today)
    assert newest_measured(lake, "user_counts") == today
