"""Savepoints and restates against the fold law's oracle, on bronze with late rows."""

import pytest
from deltalake import DeltaTable

from include.lake.ops import replaced_by
from include.stream.manifest import savepoints_of
from include.streams import device_signals
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.restate_interval import restate
from tests.engines.lake_runs import drained, table_of
from tests.late_lakes import DAY_US, START_US, at, between, commits, rows_of, small, truth

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.turn(0)]

FOLD = device_signals.FOLD
STREAM = small("device_signals")


def test_a_restate_takes_late_rows_in_and_changes_nothing_else(spark, lake):
    stamped = commits(seed=1, days=4, late=4)
    drained(spark, lake, STREAM, FOLD, stamped, runs=4)
    rows = rows_of(stamped)
    live = table_of(lake, STREAM, FOLD)
    day_us = [START_US + day * DAY_US for day in range(5)]
    assert savepoints_of(lake, STREAM.name)

    for day in (2, 0, 1):
        restate(SparkEngine(spark), lake, STREAM, at(day_us[day]), at(day_us[day + 1]))
        table = table_of(lake, STREAM, FOLD)
        right = truth(FOLD, rows, day_us[day + 1])
        assert between(table, day_us[day], day_us[day + 1]) == between(
            right, day_us[day], day_us[day + 1]
        )
    assert table != live
    assert between(table, 0, day_us[3]) == truth(FOLD, rows, day_us[3])
    assert between(table, day_us[3], day_us[4]) == between(live, day_us[3], day_us[4])

    files = DeltaTable(lake.table(STREAM.name)).file_uris()
    restate(SparkEngine(spark), lake, STREAM, at(day_us[0]), at(day_us[3]))
    assert DeltaTable(lake.table(STREAM.name)).file_uris() == files
    again = replaced_by(lake, STREAM.name)[-1]
    assert again["rows_before"] == again["rows_out"] > 0
