"""What care recorded while a machine's clock was ahead, which was set right since, is not of today."""

from datetime import UTC, datetime, timedelta

from include.lake.generations import Generations
from include.lake.ops import append_ops
from include.maintain.check_checkpoint import measured_bytes, read_recorded

NOW = datetime.now(UTC)
AHEAD = NOW + timedelta(days=400)


def test_a_state_that_was_measured_then_is_not_the_newest(lake):
    state = {"stream": "user_counts", "generation": 1, "part": "state"}
    append_ops(lake, "checkpoint_sizes", [state | {"measured_at": AHEAD, "bytes": 9}])
    assert read_recorded(lake, Generations("user_counts", 1)).bytes is None
    assert measured_bytes(lake, stream="user_counts", part="state") is None
    append_ops(lake, "checkpoint_sizes", [state | {"measured_at": NOW, "bytes": 5}])
    assert read_recorded(lake, Generations("user_counts", 1)).bytes == 5
    assert measured_bytes(lake, stream="user_counts", part="state") == 5
