"""State migrations by a mapping, against the oracle: old code, then the mapping, then new code."""

import json
import random
import sys
from pathlib import Path

import pytest
from pyspark.errors import PythonException

from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.plans.reseed_plan import ReseedOptions
from include.streams.device_signals import Signal
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.reseed_stream import reseed
from tests.bronze import Happened, stamp
from tests.changed_stream import (
    MODULE,
    NEW,
    NEW_UPDATE,
    OLD,
    OLD_UPDATE,
    STREAM,
    deployed_in,
    fold_of,
)
from tests.engines.lake_runs import drained, table_of
from tests.fold import oracle
from tests.late_lakes import at

# tests/simulator/test_local_reseeds.py has mappings without a JVM.
pytestmark = [pytest.mark.spark, pytest.mark.full]

HOUR_US = 3_600_000_000
START_US = 1_750_032_000_000_000  # a midnight
DELAY_US = 5_000
MAPPED = ReseedOptions(from_state=True)
# Device 8 falls silent before the migration, and times out while it replays; device 9 after it.
SILENT = {0: 8, 1: 9}


@pytest.fixture
def files(tmp_path, monkeypatch):
    yield deployed_in(tmp_path, monkeypatch)
    sys.modules.pop(MODULE, None)


def commits(seed: int):
    """Ten commits of eight hours each; from the sixth on some rows are ten hours late."""
    rng = random.Random(seed)
    made = []
    for number in range(10):
        start_us = START_US + number * 8 * HOUR_US
        times = [start_us + rng.randrange(8 * HOUR_US) for _ in range(15)]
        if number >= 5:
            times += [time_us - 10 * HOUR_US for time_us in rng.sample(times, 3)]
        rows = [(rng.randrange(3), time_us) for time_us in times]
        if number in SILENT:
            rows.append((SILENT[number], start_us + HOUR_US))
        made.append([Happened(Signal(key, us, rng.randrange(100)), us) for key, us in rows])
    return stamp(made)


def in_time(rows):
    """All of them are folded, whatever live would have done."""
    return [row._replace(arrival_us=None) for row in rows]


def rows_of(stamped):
    return [row for commit in stamped for row in commit]


def result(fold, rows, since_us=None, initial=None):
    return oracle.expected(fold, oracle.calls_of(fold), rows, DELAY_US, since_us, initial)


def mapped(old, migrate):
    """States of the old code as the new one has them."""
    return {
        key: known._replace(state=known.state and migrate(known.state._asdict()))
        for key, known in old.states.items()
    }


def after_migration(old, new, stamped, before: int):
    """The table of: old code up to the third commit, the mapping there, then the new code.

    The reseed comes after `before` commits and takes their late rows in; later ones are left out.
    """
    first = rows_of(stamped[:3])
    rows = [*in_time(rows_of(stamped[:before])), *rows_of(stamped[before:])]
    table = result(fold_of(old), in_time(first)).table
    return table + migrated_since(old, new, rows, first).table


def migrated_since(old, new, rows, first, initial=()):
    """What the new code makes of `rows`, from the states of the old one after `first`."""
    known = result(fold_of(old), in_time(first), *initial)
    since_us = oracle.until(first, DELAY_US)
    return result(fold_of(new), rows, since_us, mapped(known, new.migrate_state))


def begun_with_old_code(spark, lake, files, stamped, source=OLD):
    """Six commits folded by the old code: a clean savepoint after the third, and late rows."""
    old = files.deploy(source)
    drained(spark, lake, STREAM, fold_of(old), stamped[:3], runs=1)
    drained(spark, lake, STREAM, fold_of(old), stamped[3:6], runs=1)
    return old


def test_a_mapping_that_fails_switches_nothing_and_can_be_mended(spark, lake, files):
    stamped = commits(seed=3)
    old = begun_with_old_code(spark, lake, files, stamped)
    before = table_of(lake, STREAM, fold_of(old))
    files.deploy(NEW.replace('old["signals"], None', 'old["signal"], None'))
    with pytest.raises(PythonException):
        reseed(SparkEngine(spark), lake, STREAM, MAPPED)
    failed = [run for run in read_ops(lake, "runs").to_pylist() if run["outcome"] == "failed"]
    assert "MigrationError: migrate_state, for key" in failed[0]["error"]
    assert read_generations(lake, STREAM.name).current["generation"] == 1
    assert table_of(lake, STREAM, fold_of(old)) == before

    new = files.deploy(NEW)
    reseed(SparkEngine(spark), lake, STREAM, ReseedOptions())
    row = read_generations(lake, STREAM.name).current
    assert (row["generation"], row["reseed"], read_generations(lake, STREAM.name).intent) == (
        3,
        "migrate",
        None,
    )
    right = after_migration(old, new, stamped[:6], before=6)
    assert table_of(lake, STREAM, fold_of(new)) == right


def test_the_table_of_an_update_stream_becomes_the_projection_of_the_mapped_states(
    spark, lake, files
):
    stamped = commits(seed=4)
    old = begun_with_old_code(spark, lake, files, stamped, OLD_UPDATE)
    first = rows_of(stamped[:3])
    before = table_of(lake, STREAM, fold_of(old))
    assert before == result(fold_of(old), rows_of(stamped[:6])).table
    new = files.deploy(NEW_UPDATE)
    reseed(SparkEngine(spark), lake, STREAM, MAPPED)
    rows = in_time(rows_of(stamped[:6]))
    right = migrated_since(old, new, rows, first).table
    assert SILENT[0] in right  # a key that brings nothing after the mapping
    assert table_of(lake, STREAM, fold_of(new)) == right
    drained(spark, lake, STREAM, fold_of(new), stamped[6:], runs=2)
    rows += rows_of(stamped[6:])
    assert table_of(lake, STREAM, fold_of(new)) == migrated_since(old, new, rows, first).table


def test_keys_of_an_initial_state_are_mapped_like_all_others(spark, lake, files):
    stamped = commits(seed=5)
    as_of_us = START_US + 2 * HOUR_US
    file = Path(lake.initial_state_file(STREAM.name))
    file.parent.mkdir()
    silent_at = at(as_of_us + 90 * HOUR_US).isoformat()
    given = {"key": 77, "state": {"signals": 5}, "timeout_at": silent_at}
    file.write_text(json.dumps({"as_of": at(as_of_us).isoformat(), "keys": [given]}))
    old = begun_with_old_code(spark, lake, files, stamped)
    new = files.deploy(NEW)
    reseed(SparkEngine(spark), lake, STREAM, MAPPED)
    drained(spark, lake, STREAM, fold_of(new), stamped[6:], runs=1)

    state = oracle.Known(old.Total(5), as_of_us, as_of_us + 90 * HOUR_US)
    initial = (as_of_us, {77: state})
    first = rows_of(stamped[:3])
    rows = [*in_time(rows_of(stamped[:6])), *rows_of(stamped[6:])]
    table = result(fold_of(old), in_time(first), *initial).table
    table += migrated_since(old, new, rows, first, initial).table
    assert table_of(lake, STREAM, fold_of(new)) == table
