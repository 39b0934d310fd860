"""Reseeds against the local engine: late rows taken in, other buckets, an earlier instant, a kill."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from shutil import rmtree

import pytest

from include.generations import current_row, open_intent
from include.lake import LakeError
from include.ops import update_ops
from include.streams import stream_named
from spark_jobs import reseed_stream
from spark_jobs.engines.local import BronzeRow, LocalFold
from spark_jobs.fold.admission import is_late
from spark_jobs.plans.reseed_plan import ReseedOptions
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from spark_jobs.streams import device_signals, user_counts
from spark_jobs.streams.user_counts import UserEvent
from tests.engines.lake_runs import drained, table_of
from tests.test_recompute import DAY_US, START_US, STREAM, at, commits

pytestmark = pytest.mark.spark

DELAY_US = 5_000
COUNTS = replace(
    stream_named("user_counts"),
    buckets=5,
    state_partitions=2,
    watermark_delay=timedelta(milliseconds=5),
)


def as_user_events(stamped):
    return [
        [row._replace(event=UserEvent(f"u{row.event.device_id}", row.time_us)) for row in commit]
        for commit in stamped
    ]


def truth(fold, rows, until_us):
    """The table of a fold of these rows before an instant."""
    local = LocalFold(fold, 0)
    events = [BronzeRow(row.event, row.time_us, None, until_us) for row in rows]
    local.run_batch([row for row in events if row.time_us < until_us])
    emitted = list(zip(map(tuple, local.emitted.rows), local.emitted.emitted_at_us, strict=True))
    if fold.output_mode == "append":
        return Counter(emitted)
    return {row[0]: (row, at_us) for row, at_us in emitted}


def admitted(before, after):
    """All rows that a reseed saw, and those of later commits that are not late."""
    rows = [row for commit in before for row in commit]
    late = [
        row for commit in after for row in commit if is_late(row.time_us, row.arrival_us, DELAY_US)
    ]
    assert late
    return rows + [row for commit in after for row in commit if row not in late]


def until_of(stamped) -> int:
    return stamped[-1][0].commit_us - DELAY_US + 1


CASES = {
    "late rows into an append table": (STREAM, device_signals.FOLD, ReseedOptions()),
    "late rows into an update table": (COUNTS, user_counts.FOLD, ReseedOptions()),
    "other buckets": (STREAM, device_signals.FOLD, ReseedOptions(buckets=9, partitions=3)),
    "an earlier instant": (COUNTS, user_counts.FOLD, ReseedOptions(until=at(START_US + DAY_US))),
    "from the beginning": (STREAM, device_signals.FOLD, ReseedOptions(recompute=True)),
}


ORDINARY = ("late rows into an append table", "an earlier instant")


@pytest.mark.parametrize(
    "case",
    [case if case in ORDINARY else pytest.param(case, marks=pytest.mark.full) for case in CASES],
)
def test_a_reseed_takes_all_rows_in_and_live_goes_on_from_it(spark, lake, case):
    stream, fold, options = CASES[case]
    stamped = commits(seed=2, days=4, late=True)
    if fold is user_counts.FOLD:
        stamped = as_user_events(stamped)
    before, after = stamped[:9], stamped[9:]
    drained(spark, lake, stream, fold, before, runs=2)
    seen = [row for commit in before for row in commit]
    assert table_of(lake, stream, fold) != truth(fold, seen, until_of(before))

    reseed(spark, lake, stream, options)
    row = current_row(lake, stream.name)
    assert row["generation"] == 2
    stop_us = until_of(before) if options.until is None else START_US + DAY_US
    assert table_of(lake, stream, fold) == truth(fold, seen, stop_us)

    drained(spark, lake, stream, fold, after, runs=2)
    assert table_of(lake, stream, fold) == truth(fold, admitted(before, after), until_of(after))


@pytest.mark.full
def test_a_lost_checkpoint_is_made_anew(spark, lake):
    fold, stamped = device_signals.FOLD, commits(seed=3, days=3, late=True)
    drained(spark, lake, STREAM, fold, stamped[:6], runs=2)
    rmtree(lake.checkpoint(STREAM.name, 1))
    reseed(spark, lake, STREAM, ReseedOptions())
    drained(spark, lake, STREAM, fold, stamped[6:], runs=1)
    right = truth(fold, admitted(stamped[:6], stamped[6:]), until_of(stamped))
    assert table_of(lake, STREAM, fold) == right


class KilledError(Exception):
    pass


def killed(*_):
    raise KilledError


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("replayed", marks=pytest.mark.full),
        pytest.param("_interval", marks=pytest.mark.full),
        "_switch",
    ],
)
def test_a_reseed_that_was_killed_is_finished_by_the_next_run(spark, lake, monkeypatch, step):
    fold, stamped = user_counts.FOLD, as_user_events(commits(seed=4, days=3, late=True))
    drained(spark, lake, COUNTS, fold, stamped[:6], runs=1)
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, step, killed)
        with pytest.raises(KilledError):
            reseed(spark, lake, COUNTS, ReseedOptions())
    assert open_intent(lake, COUNTS.name)
    drained(spark, lake, COUNTS, fold, stamped[6:], runs=1)
    assert not open_intent(lake, COUNTS.name)
    right = truth(fold, admitted(stamped[:6], stamped[6:]), until_of(stamped))
    assert table_of(lake, COUNTS, fold) == right


@pytest.mark.full
def test_a_reseed_begun_with_other_code_is_replaced_by_one_from_the_beginning(
    spark, lake, monkeypatch
):
    fold, stamped = user_counts.FOLD, as_user_events(commits(seed=5, days=2, late=True))
    drained(spark, lake, COUNTS, fold, stamped, runs=1)
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, "_switch", killed)
        with pytest.raises(KilledError):
            reseed(spark, lake, COUNTS, ReseedOptions())
    other = {"stream": COUNTS.name, "generation": 2, "code": "another"}
    update_ops(lake, "generations", ["stream", "generation"], [other])
    with pytest.raises(LakeError, match="begun with other code"):
        drain(spark, lake, COUNTS)
    reseed(spark, lake, COUNTS, ReseedOptions())
    row = current_row(lake, COUNTS.name)
    assert (row["generation"], row["base_savepoint"]) == (3, None)
    assert not open_intent(lake, COUNTS.name)
    seen = [row for commit in stamped for row in commit]
    assert table_of(lake, COUNTS, fold) == truth(fold, seen, until_of(stamped))
