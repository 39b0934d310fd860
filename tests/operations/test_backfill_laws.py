"""live = replay = local for each stream, and a restatement of unchanged data changes nothing.

Against the oracle of the fold law. (Late rows are in tests/simulator.)
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from include.lake.ops import replaced_by
from include.stream.manifest import keep_savepoints, savepoints_of
from include.stream.rebuild_plan import RebuildOptions
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from tests.bronze import rows_for
from tests.engines.lake_runs import known_in, stored, table_of
from tests.fold import oracle
from tests.fold.arrivals import came_to, run
from tests.fold.local import LocalFold
from tests.late_lakes import (
    HOUR,
    STREAMS,
    at,
    between,
    commits,
    delay_us,
    in_runs,
    live_result,
    rows_of,
    small,
)

pytestmark = pytest.mark.spark

# A minute lies between two commits: services are stale within it.
BY_INGESTION = small(
    "service_health",
    watermark_delay=timedelta(0),
    settings={"stale_after": HOUR / 100, "time": "processing"},
)


LAWS = {
    **{name: replace(stream, watermark_delay=HOUR) for name, stream in STREAMS.items()},
    "service_health by ingestion": BY_INGESTION,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.e2e if case == "user_counts" else pytest.mark.full)
        for case in LAWS
    ],
)
def test_live_replay_and_local_agree_and_a_restate_of_unchanged_data_changes_nothing(
    spark, lake, case
):
    stream = LAWS[case]
    fold = load_definition(stream).fold
    stamped = commits(seed=11, days=2, source=stream.source, tardy=4)
    seen = [rows_for(fold, commit) for commit in stamped]
    until_us = oracle.until(rows_of(seen), delay_us(stream))
    local = came_to(fold, run(LocalFold(fold, delay_us(stream)), seen))
    assert local == live_result(stream, fold, stamped)
    assert local.table
    assert not local.late

    in_runs(spark, lake, stream, stamped, runs=2)
    assert table_of(lake, stream, fold) == local.table
    assert stored(spark, lake, stream, fold) == local.states
    if fold.output_mode == "update":  # it shows the live state: no interval is restated
        keep_savepoints(lake, stream.name, [])
        rebuild(SparkEngine(spark), lake, stream, RebuildOptions(full_refresh=True))
    else:
        restate_parts(spark, lake, stream, parts(local.table, seen, until_us), local.table)
    assert table_of(lake, stream, fold) == local.table
    replayed = savepoints_of(lake, stream.name)[-1]
    assert replayed.until_us == until_us
    assert known_in(SparkEngine(spark).savepoint_states(lake, replayed), fold) == local.states


def restate_parts(spark, lake, stream, parts, table) -> None:
    for start_us, end_us in parts:
        if (start_us, end_us) == parts[-1]:  # a savepoint of live at the end would serve, too
            keep_savepoints(lake, stream.name, [])
        restate(SparkEngine(spark), lake, stream, at(start_us), at(end_us))
        done = replaced_by(lake, stream.name)[-1]
        rows = between(table, start_us, end_us).total()
        assert done["rows_before"] == done["rows_out"] == rows > 0


def parts(table, seen, until_us) -> list[tuple[int, int]]:
    """A later part, an earlier one and the whole; the parts end where a row is emitted."""
    emitted_us = sorted({at_us for _, at_us in table})
    first_us = min(row.time_us for commit in seen for row in commit)
    cut_us, end_us = emitted_us[len(emitted_us) // 3], emitted_us[2 * len(emitted_us) // 3]
    return [(cut_us, end_us), (first_us, cut_us + 1), (first_us, until_us)]
