"""A lake of release 0.6 goes on under this one: what 0.5 could not hold, and a source that is a table's change feed.

tests/e2e/lake_of_0_6/make.py has made it, by 0.6's own code. (Five shipped streams: test_lake_of_0_5.py.)
"""

import tarfile
from datetime import timedelta
from pathlib import Path

import pytest

from include.care.check_checkpoint import check_checkpoint
from include.coverage.table_coverage import table_coverage
from include.fold.instants import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.lake.read_tables import dataset_of
from include.plans.open_stream import open_stream
from include.plans.plan_recompute import plan_recompute
from include.plans.reseed_options import ReseedOptions
from include.plans.stream_identity import stream_identity
from include.registry import stream_named
from spark_jobs.engines.checkpointed_states import find_unreadable, read_states
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.e2e.lake_of_0_6.kept import (
    ARCHIVE,
    START,
    STREAMS,
    before,
    declared,
    land,
    oracle_rows,
    read_expected,
    settled,
    table_rows,
)
from tests.e2e.test_lake_of_0_5 import move_paths

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.xdist_group("lake of 0.6"),
    pytest.mark.turn(0),
]

HOUR = timedelta(hours=1)
each_stream = pytest.mark.parametrize("name", STREAMS)


@pytest.fixture(scope="module")
def old_lake(tmp_path_factory) -> Lake:
    """The lake as 0.6 left it."""
    folder = tmp_path_factory.mktemp("kept")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    with declared(folder) as lake:
        for file in Path(lake.root, "checkpoints").glob("*/*/state/0/_metadata/v2/[!.]*"):
            move_paths(file, lake)
        yield lake


def folder_of(lake: Lake) -> Path:
    return Path(lake.root).parent


@each_stream
def test_its_tables_are_what_0_6_said_and_todays_fold_comes_to_the_same(old_lake, name):
    until, table, bronze = read_expected(folder_of(old_lake), name)
    assert settled(old_lake, name) == until
    assert table_rows(old_lake, name) == table
    assert oracle_rows(old_lake, name, until) == bronze
    assert table.total() > 10


@each_stream
def test_its_states_are_read(spark, old_lake, name):
    opened = open_stream(old_lake, stream_named(name))
    assert find_unreadable(spark, opened.checkpoint, opened.fold) is None
    states = read_states(spark, opened.checkpoint, opened.fold).collect()
    assert len(states) > 10
    if name == "kept_orders":
        assert any(row["timers"] for row in states)
        assert any(row["seen"] for row in states)
        assert {row["key"]["customer"] is None for row in states} == {True, False}


def test_what_it_rescued_and_rejected_is_there(old_lake):
    rescued = dataset_of(old_lake.bronze("kept_orders")).to_table(columns=["rescued"])
    assert {text for text in rescued["rescued"].to_pylist() if text} == {'{"colour": "red"}'}
    assert dataset_of(old_lake.rejected("kept_orders")).to_table().num_rows > 5
    assert dataset_of(old_lake.quarantine("kept_orders")).to_table().num_rows == 3
    assert read_ops(old_lake, "savepoints", {"stream": "kept_orders"}).num_rows


@pytest.fixture(scope="module")
def gone_on(spark, old_lake) -> Lake:
    """The same after a landing, and a run of each stream under this release."""
    land(old_lake, folder_of(old_lake), 6)
    for name in STREAMS:
        drain(SparkEngine(spark), old_lake, stream_named(name))
    return old_lake


@each_stream
def test_it_goes_on_and_a_savepoint_of_0_6_is_clean(gone_on, name):
    stream = stream_named(name)
    until, table, _ = read_expected(folder_of(gone_on), name)
    now = table_rows(gone_on, name)
    assert settled(gone_on, name) > until + HOUR
    if name == "kept_orders":
        assert before(now, until) == table
    found = check_checkpoint(gone_on, stream).findings
    assert not [finding for finding in found if finding.severity == "error"]
    assert "code_changed" not in {finding.finding for finding in found}
    identity = stream_identity(gone_on, stream)
    plan = plan_recompute(gone_on, stream, identity, START + 3 * HOUR, START + 4 * HOUR)
    # That of the orders lacks rows that came late.
    assert (plan.base.savepoint is not None) == (name == "kept_moves")


def test_a_backfill_takes_the_late_rows_of_its_interval_in(spark, gone_on):
    stream, start, until = stream_named("kept_orders"), START + HOUR, START + 3 * HOUR
    recompute(SparkEngine(spark), gone_on, stream, start, until)
    expected = oracle_rows(gone_on, "kept_orders", settled(gone_on, "kept_orders"))
    within = range(micros_of(start), micros_of(until))

    def of_interval(rows):
        return {row: n for row, n in rows.items() if row[-1] in within}

    assert of_interval(table_rows(gone_on, "kept_orders")) == of_interval(expected) != {}


@each_stream
def test_a_reseed_takes_the_late_rows_in_and_the_table_equals_the_oracle(spark, gone_on, name):
    stream = stream_named(name)
    reseed(SparkEngine(spark), gone_on, stream, ReseedOptions())
    assert table_coverage(gone_on, stream).coverage.wrong == ()
    assert table_rows(gone_on, name) == oracle_rows(gone_on, name, settled(gone_on, name))
