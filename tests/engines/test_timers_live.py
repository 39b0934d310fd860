"""Named timers on real Delta and RocksDB, and in replay."""

import random
import sys
from dataclasses import replace

import pytest
from pyspark import cloudpickle

from spark_jobs.engines.spark_engine import replay_fold
from spark_jobs.engines.state_rows import read_states, states_from_rows
from tests.bronze import rows_for
from tests.declared import with_fold
from tests.engines.lake_runs import admitted_live, drained, known_in
from tests.engines.test_timeouts_live import (
    DELAY,
    MACHINE,
    MICROSECOND,
    arrived,
    compare_with_local,
)
from tests.fold import failing_machine, timer_machine
from tests.fold.arrivals import run, timers_in
from tests.fold.local import LocalFold
from tests.fold.timer_machine import a_timer_machine, fold_with_timers

pytestmark = [pytest.mark.spark, pytest.mark.e2e]
# Workers cannot import tests, so what they need of these travels with the query.
for module in (sys.modules[__name__], timer_machine, failing_machine):
    cloudpickle.register_pickle_by_value(module)

FOLD = fold_with_timers(a_timer_machine(random.Random(7), "EventTimeTimeout", False), "append")
MADE = with_fold(MACHINE.stream, FOLD)
TIMED = MACHINE._replace(stream=replace(MADE, name="timers"))


def test_live_and_replay_come_to_what_the_local_engine_does(spark, lake):
    given, delay_us = arrived(TIMED, seed=6), DELAY // MICROSECOND
    stream, fold = given.stream, given.fold
    local = run(LocalFold(fold, delay_us), [rows_for(fold, rows) for rows in given.stamped])
    timers = timers_in(local.states().values())
    assert len(timers) > 1

    drained(spark, lake, stream, fold, given.stamped, runs=2)
    compare_with_local(spark, lake, given)
    states = read_states(spark, lake.checkpoint(stream.name, 1), fold)
    assert timers_in(states_from_rows(fold, states.toArrow())) == timers

    split_us = given.until_us - 12_000
    first = replay_fold(admitted_live(spark, lake, stream, fold), fold, 3, split_us)
    rest = admitted_live(spark, lake, stream, fold, split_us)
    second = replay_fold(rest, fold, 4, given.until_us, base=first.states.persist())
    assert known_in(second.states, fold) == given.local.states
    assert timers_in(states_from_rows(fold, second.states.toArrow())) == timers
