"""Reseeds against the oracle: late rows taken in, other buckets, an earlier instant, a kill."""

from shutil import rmtree

import pytest

from include.lake.generations import read_generations
from include.lake.ops import update_ops
from include.plans.reseed_plan import ReseedOptions
from include.streams import device_signals, user_counts
from include.streams.device_signals import Signal
from spark_jobs import reseed_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp
from tests.engines.lake_runs import drained, table_of
from tests.late_lakes import (
    DAY_US,
    START_US,
    admitted,
    at,
    between,
    commits,
    rows_of,
    small,
    truth,
    until_of,
)
from tests.refused import refused

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


@pytest.mark.full
def test_a_lost_checkpoint_is_made_anew(spark, lake):
    fold, stamped = device_signals.FOLD, commits(seed=3, days=3, late=4)
    drained(spark, lake, SIGNALS, fold, stamped[:6], runs=2)
    rmtree(lake.checkpoint(SIGNALS.name, 1))
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    drained(spark, lake, SIGNALS, fold, stamped[6:], runs=1)
    right = truth(fold, admitted(SIGNALS, stamped[:6], stamped[6:]), until_of(SIGNALS, stamped))
    assert table_of(lake, SIGNALS, fold) == right


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


@pytest.mark.full
def test_a_recompute_before_a_killed_reseed_is_finished_is_not_undone_by_it(
    spark, lake, monkeypatch
):
    fold, stamped = device_signals.FOLD, commits(seed=6, days=2, late=4)
    drained(spark, lake, SIGNALS, fold, stamped, runs=1)
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, "replayed", killed)
        with pytest.raises(KilledError):
            reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    # The reseed does not know of this row, but the recompute does.
    late = Signal(1, START_US + DAY_US // 2, 1)
    events = [[row.event for row in commit] for commit in stamped]
    *_, very_late = stamp([*events, [late]])
    append_commit(lake, SIGNALS.source, fold, very_late)
    recompute(SparkEngine(spark), lake, SIGNALS, at(START_US), at(START_US + DAY_US))
    drain(SparkEngine(spark), lake, SIGNALS)
    assert not read_generations(lake, SIGNALS.name).intent
    day_us = START_US, START_US + DAY_US
    right = truth(fold, [*rows_of(stamped), *very_late], until_of(SIGNALS, stamped))
    assert between(table_of(lake, SIGNALS, fold), *day_us) == between(right, *day_us)


@pytest.mark.full
def test_a_reseed_begun_with_other_code_is_replaced_by_one_from_the_beginning(
    spark, lake, monkeypatch
):
    fold, stamped = user_counts.FOLD, commits(seed=5, days=2, source=COUNTS.source, late=4)
    drained(spark, lake, COUNTS, fold, stamped, runs=1)
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, "_switch", killed)
        with pytest.raises(KilledError):
            reseed(SparkEngine(spark), lake, COUNTS, ReseedOptions())
    other = {"stream": COUNTS.name, "generation": 2, "code": "another"}
    update_ops(lake, "generations", ["stream", "generation"], [other])
    with refused("settings_changed"):
        drain(SparkEngine(spark), lake, COUNTS)
    reseed(SparkEngine(spark), lake, COUNTS, ReseedOptions())
    row = read_generations(lake, COUNTS.name).current
    assert (row["generation"], row["base_savepoint"]) == (3, None)
    assert not read_generations(lake, COUNTS.name).intent
    seen = rows_of(stamped)
    assert table_of(lake, COUNTS, fold) == truth(fold, seen, until_of(COUNTS, stamped))
