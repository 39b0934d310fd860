"""What care recorded while a machine's clock was ahead, which was set right since, is not of today."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from include.care.plan_care import plan_table_care
from include.care.recorded_sizes import read_recorded
from include.lake.ops import append_ops
from include.lake.stream_result import newest_state_bytes
from include.limits import TABLE_CARE

NOW = datetime.now(UTC)
AHEAD = NOW + timedelta(days=400)


def test_what_was_rewritten_then_does_not_spend_the_budget_of_each_day(lake):
    for batch in range(2):
        append_ops(lake, "batches", [{"stream": "user_counts", "generation": 1, "batch_id": batch}])
    spent = {
        "measured_at": AHEAD,
        "table": "bronze/signals",
        "occasion": "after",
        "bytes_rewritten": TABLE_CARE.day_bytes,
    }
    append_ops(lake, "table_sizes", [spent])
    eager = replace(TABLE_CARE, min_small_files=2)
    plans = {plan.table.name: plan for plan in plan_table_care(lake, eager, NOW)}
    assert plans["ops/batches"].optimize


def test_a_state_that_was_measured_then_is_not_the_newest(lake):
    state = {"stream": "user_counts", "generation": 1, "part": "state"}
    append_ops(lake, "checkpoint_sizes", [state | {"measured_at": AHEAD, "bytes": 9}])
    assert read_recorded(lake, "user_counts", 1).bytes is None
    assert newest_state_bytes(lake, "user_counts") is None
    append_ops(lake, "checkpoint_sizes", [state | {"measured_at": NOW, "bytes": 5}])
    recorded = read_recorded(lake, "user_counts", 1)
    assert (recorded.bytes, recorded.measured_at) == (5, NOW)
    assert newest_state_bytes(lake, "user_counts") == 5
