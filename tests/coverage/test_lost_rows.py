"""Sequences of operations by which rows were once lost without a word (L1 to L8 of the simulator).

After each the table is what an oracle says, or the check names what is wrong and what mends it,
and that mends it.
"""

import shutil
import sys
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from include.lake.generations import read_generations
from include.lake.paths import LakeError
from include.plans.open_stream import has_waiting_rows
from include.plans.plan_backfill import why_not_promote
from include.plans.reseed_plan import ReseedOptions
from include.savepoints.manifest import savepoints_of
from include.settings import SettingsError
from include.streams import device_signals
from spark_jobs import reseed_stream
from spark_jobs.compact_state import compact
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
from tests import changed_stream
from tests.bronze import append_commit
from tests.changed_stream import deployed_in, fold_of
from tests.engines.lake_runs import drained, table_of
from tests.late_lakes import (
    DAYS_US,
    HOUR,
    at,
    days,
    found,
    in_runs,
    is_right,
    recompute_day,
    rows_of,
    small,
    truth,
    until_of,
    with_late_row,
)
from tests.refused import refused

# The simulator has these sequences without a JVM, with the same jobs (tests/simulator/sequences.py).
pytestmark = pytest.mark.spark

SIGNALS, FOLD = small("device_signals"), device_signals.FOLD
CHANGED = changed_stream.STREAM
WAY_OUT = f"./stateful reseed {SIGNALS.name} --apply"


class KilledError(Exception):
    pass


def killed(*_):
    raise KilledError


def reseed_killed(spark, lake, monkeypatch, options) -> None:
    """A reseed that has replaced the rows of the table, and dies before its switch."""
    with monkeypatch.context() as patched:
        patched.setattr(reseed_stream, "_switch", killed)
        with pytest.raises(KilledError):
            reseed(SparkEngine(spark), lake, SIGNALS, options)
    assert read_generations(lake, SIGNALS.name).intent


# L1: a rewind takes the table behind savepoints that stay clean.

REWIND = ReseedOptions(until=at(DAYS_US[1]))


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(ReseedOptions(buckets=9, partitions=3), marks=pytest.mark.full),
        pytest.param(ReseedOptions(), marks=pytest.mark.full),
    ],
    ids=["other buckets", "plain"],
)
def test_a_reseed_after_a_rewind_brings_back_what_that_took_away(spark, lake, then):
    stamped = days(2, seed=41)
    in_runs(spark, lake, SIGNALS, stamped, runs=2)
    reseed(SparkEngine(spark), lake, SIGNALS, REWIND)
    assert is_right(lake, SIGNALS, stamped, until_us=DAYS_US[1])
    reseed(SparkEngine(spark), lake, SIGNALS, then)
    assert is_right(lake, SIGNALS, stamped)


@pytest.mark.full
def test_a_promote_after_a_rewind_brings_back_what_that_took_away(spark, lake):
    stamped = days(2, seed=42)
    in_runs(spark, lake, SIGNALS, stamped, runs=2)
    reseed(SparkEngine(spark), lake, SIGNALS, REWIND)
    stamped = with_late_row(stamped)
    append_commit(lake, SIGNALS.source, FOLD, stamped[-1])
    assert found(lake, SIGNALS) == {"late_rows_not_recomputed"}
    promote(spark, lake)
    assert is_right(lake, SIGNALS, stamped)


def promote(spark, lake, stream=SIGNALS) -> None:
    """What a backfill with the parameter promote ends with."""
    assert why_not_promote(lake, stream, at(DAYS_US[0]), lambda dates: 0) is None
    reseed(SparkEngine(spark), lake, stream, ReseedOptions())


@pytest.mark.full
def test_a_reseed_after_a_rewind_that_was_killed_brings_back_what_that_took_away(
    spark, lake, monkeypatch
):
    stamped = days(2, seed=43)
    in_runs(spark, lake, SIGNALS, stamped, runs=2)
    reseed_killed(spark, lake, monkeypatch, REWIND)
    assert has_waiting_rows(lake, SIGNALS)
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions(buckets=9))
    assert is_right(lake, SIGNALS, stamped)
    assert not read_generations(lake, SIGNALS.name).intent


# L2: a lost table is as far behind as can be.


@pytest.mark.full
def test_a_lost_table_stops_the_run_and_a_reseed_makes_all_of_it_anew(spark, lake):
    stamped = days(2, seed=44)
    in_runs(spark, lake, SIGNALS, stamped[:5], runs=2)
    shutil.rmtree(lake.table(SIGNALS.name))
    assert has_waiting_rows(lake, SIGNALS)
    assert found(lake, SIGNALS) == {"table_changed"}
    append_commit(lake, SIGNALS.source, FOLD, stamped[5])
    with pytest.raises(LakeError):
        drain(SparkEngine(spark), lake, SIGNALS)
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    assert is_right(lake, SIGNALS, stamped)


# L3: late rows are those in bronze, whoever has read them.


@pytest.mark.full
def test_late_rows_that_live_has_not_read_are_named_and_taken_in(spark, lake):
    before = days(3, seed=45)
    in_runs(spark, lake, SIGNALS, before, runs=2)
    stamped = with_late_row(before)
    append_commit(lake, SIGNALS.source, FOLD, stamped[-1])
    recompute_day(spark, lake, SIGNALS, 1)  # its savepoint has the row; the first day has not
    assert found(lake, SIGNALS) == {"late_rows_not_recomputed"}
    promote(spark, lake)
    assert is_right(lake, SIGNALS, stamped)


# L4: what was late stays late, whatever the delay is now.


@pytest.mark.full
def test_a_raised_delay_does_not_make_late_rows_forgotten(spark, lake):
    stamped = days(3, seed=46, tardy=2)
    in_runs(spark, lake, SIGNALS, stamped, runs=2)
    recompute_day(spark, lake, SIGNALS, 1)
    raised = replace(SIGNALS, watermark_delay=HOUR)
    assert found(lake, raised) == {"late_rows_not_recomputed"}
    with pytest.raises(SettingsError):
        drain(SparkEngine(spark), lake, raised)
    reseed(SparkEngine(spark), lake, raised, ReseedOptions())
    assert is_right(lake, raised, stamped)


# L5: nothing writes beside an open reseed but what finishes it.


def open_reseed(spark, lake, monkeypatch):
    """A killed reseed, of commits that the generation before has not folded."""
    stamped = days(2, seed=47, late=2)
    in_runs(spark, lake, SIGNALS, stamped[:4], runs=1)
    for commit in stamped[4:]:
        append_commit(lake, SIGNALS.source, FOLD, commit)
    reseed_killed(spark, lake, monkeypatch, ReseedOptions())
    return stamped


@pytest.mark.full
def test_a_compaction_after_a_reseed_that_was_killed_adds_no_row_twice(spark, lake, monkeypatch):
    stamped = open_reseed(spark, lake, monkeypatch)
    compact(SparkEngine(spark), lake, SIGNALS)
    assert read_generations(lake, SIGNALS.name).current["generation"] == 2
    assert is_right(lake, SIGNALS, stamped)


@pytest.mark.full
def test_a_savepoint_after_a_reseed_that_was_killed_is_not_of_the_state_before(
    spark, lake, monkeypatch
):
    stamped = open_reseed(spark, lake, monkeypatch)
    known = savepoints_of(lake, SIGNALS.name)
    with pytest.raises(LakeError):  # of the new generation
        savepoint(SparkEngine(spark), lake, SIGNALS)
    assert savepoints_of(lake, SIGNALS.name) == known
    assert is_right(lake, SIGNALS, stamped)


# L6 and L7: code that changes.


@pytest.fixture
def files(tmp_path, monkeypatch):
    yield deployed_in(tmp_path, monkeypatch)
    sys.modules.pop(changed_stream.MODULE, None)


OTHER = changed_stream.OLD.replace('"signal", total.signals', '"signal", total.signals * 100')


@pytest.mark.full
def test_a_day_by_other_code_is_named_and_made_anew(spark, lake, files):
    stamped = days(2, seed=48)
    first = fold_of(files.deploy(changed_stream.OLD))
    drained(spark, lake, CHANGED, first, stamped, runs=2)
    files.deploy(OTHER)
    recompute_day(spark, lake, CHANGED, 0)
    files.deploy(changed_stream.OLD)
    assert table_of(lake, CHANGED, first) != truth(
        first, rows_of(stamped), until_of(CHANGED, stamped)
    )
    assert found(lake, CHANGED) == {"table_not_right"}
    reseed(SparkEngine(spark), lake, CHANGED, ReseedOptions())
    assert is_right(lake, CHANGED, stamped)


@pytest.mark.full
def test_a_promote_does_not_give_a_mapped_state_up(spark, lake, files):
    stamped = days(1, seed=49)
    drained(spark, lake, CHANGED, fold_of(files.deploy(changed_stream.OLD)), stamped, runs=1)
    second = fold_of(files.deploy(changed_stream.NEW))
    reseed(SparkEngine(spark), lake, CHANGED, ReseedOptions(from_state=True))
    mapped = table_of(lake, CHANGED, second)
    assert found(lake, CHANGED) == set()
    stamped = with_late_row(stamped)
    append_commit(lake, CHANGED.source, second, stamped[-1])
    with refused(
        "mapped_state",
        subject=CHANGED.name,
        command=f"./stateful reseed {CHANGED.name} --recompute --apply",
    ):
        promote(spark, lake, CHANGED)
    assert found(lake, CHANGED) == {"late_rows_not_recomputed"}
    assert table_of(lake, CHANGED, second) == mapped
    reseed(SparkEngine(spark), lake, CHANGED, ReseedOptions(recompute=True))
    assert is_right(lake, CHANGED, stamped)


# L8: a table that is older than its checkpoint.


@pytest.mark.full
def test_a_restored_table_stops_the_run_and_is_made_anew(spark, lake):
    stamped, path = days(2, seed=50), lake.table(SIGNALS.name)
    in_runs(spark, lake, SIGNALS, stamped, runs=2)
    older = DeltaTable(path).version() - 2
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {older}")
    assert has_waiting_rows(lake, SIGNALS)
    assert found(lake, SIGNALS) == {"table_changed"}
    with pytest.raises(LakeError):
        drain(SparkEngine(spark), lake, SIGNALS)
    reseed(SparkEngine(spark), lake, SIGNALS, ReseedOptions())
    assert is_right(lake, SIGNALS, stamped)
