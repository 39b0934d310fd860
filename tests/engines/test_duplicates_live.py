"""Events that are delivered again, on real Delta and RocksDB, in a savepoint and replayed from it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from include.fold.definition import Deduplicate
from include.lake.ops import read_ops
from include.stream.open_stream import open_stream
from spark_jobs.engines.spark_engine import SparkEngine, replay_fold
from spark_jobs.engines.state_rows import read_states, states_from_rows
from spark_jobs.write_savepoint import write_live_savepoint
from tests.bronze import rows_for
from tests.engines.lake_runs import admitted_live, drained, known_in
from tests.engines.test_timeouts_live import ALERTS, DELAY, arrived, compare_with_local
from tests.fold.arrivals import run
from tests.fold.duplicates import seen_in
from tests.fold.local import LocalFold

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
KNOWN = Deduplicate(by="event_type", within=timedelta(milliseconds=4))
DEDUPLICATED = ALERTS._replace(stream=replace(ALERTS.stream, deduplicate=KNOWN, buckets=3))
MICROSECOND = timedelta(microseconds=1)


def test_live_and_a_replay_from_its_savepoint_come_to_what_the_local_engine_does(spark, lake):
    given, engine = arrived(DEDUPLICATED, seed=4), SparkEngine(spark)
    stream, fold, delay_us = given.stream, given.fold, DELAY // MICROSECOND
    local = run(LocalFold(fold, delay_us), [rows_for(fold, rows) for rows in given.stamped])
    seen = seen_in(local.states().values())

    drained(spark, lake, stream, fold, given.stamped[:3], runs=2)
    savepoint = write_live_savepoint(engine, open_stream(lake, stream), "some-run", "live")
    drained(spark, lake, stream, fold, given.stamped[3:], runs=1)
    compare_with_local(spark, lake, given)
    states = read_states(spark, lake.checkpoint(stream.name, 1), fold)
    assert seen_in(states_from_rows(fold, states.toArrow())) == seen
    runs = [row for row in read_ops(lake, "runs").to_pylist() if row["subject"] == stream.name]
    assert sum(row["rows_duplicate"] for row in runs) == local.duplicates > 0 < len(seen)

    base = engine.savepoint_states(lake, savepoint)
    rest = admitted_live(spark, lake, stream, fold, savepoint.until_us)
    replayed = replay_fold(rest, fold, 4, given.until_us, base)
    assert known_in(replayed.states, fold) == given.local.states
    assert seen_in(states_from_rows(fold, replayed.states.toArrow())) == seen
