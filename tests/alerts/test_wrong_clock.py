"""A run under a clock that was ahead: what later runs find is told of all the same."""

import pytest

from include.lake.paths import Lake
from tests.alerts.lakes import Told

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("hours_ahead", [0, 400 * 24])
def test_what_is_found_after_a_run_whose_clock_was_ahead_is_told(lake: Lake, hours_ahead: int):
    told = Told(lake)
    told.run()
    assert told.look() == []
    hour = told.hour
    told.hour += hours_ahead
    told.run()
    assert told.look() == []
    told.hour = hour + 1
    told.run(("table_changed", "error"), ("checkpoint_rewound", "error"))
    assert {found for _, _, found in told.look()} == {"table_changed", "checkpoint_rewound"}
