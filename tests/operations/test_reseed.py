"""Reseeds against the oracle: late rows taken in, other buckets, an earlier instant, a kill."""

import pytest

from include.lake.generations import read_generations
from include.plans.reseed_plan import ReseedOptions
from include.streams import device_signals, user_counts
from spark_jobs import reseed_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.reseed_stream import reseed
from tests.engines.lake_runs import drained, table_of
from tests.late_lakes import (
    DAY_US,
    START_US,
    admitted,
    at,
    commits,
    rows_of,
    small,
    truth,
    until_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.turn(2)]

SIGNALS = small("device_signals")
COUNTS = small("user_counts")


CASES = {
    "late rows into an append table": (SIGNALS, device_signals.FOLD, ReseedOptions()),
    "late rows into an update table": (COUNTS, user_counts.FOLD, ReseedOptions()),
    "other buckets": (SIGNALS, device_signals.FOLD, ReseedOptions(buckets=9, partitions=3)),
    "an earlier instant": (COUNTS, user_counts.FOLD, ReseedOptions(until=at(START_US + DAY_US))),
    "from the beginning": (SIGNALS, device_signals.FOLD, ReseedOptions(recompute=True)),
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_a_reseed_takes_all_rows_in_and_live_goes_on_from_it(spark, lake, case):
    stream, fold, options = CASES[case]
    stamped = commits(seed=2, days=4, source=stream.source, late=4)
    before, after = stamped[:9], stamped[9:]
    drained(spark, lake, stream, fold, before, runs=2)
    seen = rows_of(before)
    assert table_of(lake, stream, fold) != truth(fold, seen, until_of(stream, before))

    reseed(SparkEngine(spark), lake, stream, options)
    row = read_generations(lake, stream.name).current
    assert row["generation"] == 2
    stop_us = until_of(stream, before) if options.until is None else START_US + DAY_US
    assert table_of(lake, stream, fold) == truth(fold, seen, stop_us)

    drained(spark, lake, stream, fold, after, runs=2)
    assert table_of(lake, stream, fold) == truth(
        fold, admitted(stream, before, after), until_of(stream, after)
    )


class KilledError(Exception):
    pass


def killed(*_):
    raise KilledError


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("replayed", marks=pytest.mark.full),
        pytest.param("interval_row", marks=pytest.mark.full),
        pytest.param("_switch", marks=pytest.mark.e2e),
    ],
)
def test_a_reseed_that_was_killed_is_finished_by_the_next_run(spark, lake, monkeypatch, step):
    fold, stamped = user_counts.FOLD, commits(seed=4, days=3, source=COUNTS.source, late=4)
    drained(spark, lake, COUNTS, fold, stamped[:6], runs=1)
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, step, killed)
        with pytest.raises(KilledError):
            reseed(SparkEngine(spark), lake, COUNTS, ReseedOptions())
    assert read_generations(lake, COUNTS.name).intent
    drained(spark, lake, COUNTS, fold, stamped[6:], runs=1)
    assert not read_generations(lake, COUNTS.name).intent
    right = truth(fold, admitted(COUNTS, stamped[:6], stamped[6:]), until_of(COUNTS, stamped))
    assert table_of(lake, COUNTS, fold) == right
