"""Live runs on real Delta and RocksDB. Small batches are fetched and written by the driver, large ones by
Spark: nobody can tell which."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from pyspark.errors import StreamingQueryException

from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.stream.record import commit_alone, recorded
from include.streams import device_signals, user_counts
from spark_jobs import run_stream
from spark_jobs.engines import live, live_batch
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp
from tests.deaths import die
from tests.engines.live_lakes import (
    COUNTED,
    COUNTS,
    SIGNALS,
    expected_rows,
    local_run,
    make_commits,
    signal,
    table_rows,
    user_event,
    version_and_state,
)
from tests.refused import refused

pytestmark = pytest.mark.spark

CASES = [
    pytest.param(SIGNALS, device_signals.FOLD, signal, id="device_signals"),
    pytest.param(COUNTS, user_counts.FOLD, user_event, id="user_counts"),
]
HERE, ON_SPARK = True, False
BOTH, USUAL = ("user_counts", (HERE, ON_SPARK)), pytest.mark.e2e


def test_a_run_with_nothing_new_changes_nothing(spark, counted_lake):
    lake = counted_lake
    before = version_and_state(spark, lake)
    drain(SparkEngine(spark), lake, COUNTS)
    assert version_and_state(spark, lake) == before
    first, second = sorted(read_ops(lake, "runs").to_pylist(), key=lambda run: run["ended_at"])
    assert (second["batches"], second["rows_in"], second["rows_out"]) == (0, 0, 0)
    assert second["until"] == first["until"] is not None


def test_rows_that_do_not_add_up_fail_the_run_with_a_finding(spark, counted_lake):
    lake = counted_lake
    record = recorded(read_generations(lake, COUNTS.name))
    totals = record.totals | {"total_folded": record.totals["total_folded"] + 1}
    commit_alone(lake, replace(record, totals=totals))
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[1])
    with refused("rows_do_not_add_up", subject=COUNTS.name):
        drain(SparkEngine(spark), lake, COUNTS)
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found if row["severity"] == "error"] == ["rows_do_not_add_up"]


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch):
    """Says who writes from now on, and fails when it is the other one."""

    writers = {"fetch": live.fetch, "left_on_spark": live.left_on_spark}

    def refuse(*_: object) -> None:
        raise AssertionError("the other writer")

    def choose(is_small: bool) -> None:
        other = "left_on_spark" if is_small else "fetch"
        monkeypatch.setattr(run_stream, "is_small", lambda _: is_small)
        for name, function in writers.items():
            monkeypatch.setattr(live, name, refuse if name == other else function)

    return choose


def killed_and_repeated(
    spark, lake, monkeypatch, writer, stream, fold, rows, first, second
) -> None:
    """A batch that one writer has written, and the other finishes after a kill."""
    append_commit(lake, stream.source, fold, rows)
    writer(first)
    with monkeypatch.context() as patched:
        patched.setattr(live_batch.BatchWriter, "_note", die)
        with pytest.raises(StreamingQueryException):
            drain(SparkEngine(spark), lake, stream)
    writer(second)
    drain(SparkEngine(spark), lake, stream)


def check_folded(lake, stream, fold, stamped) -> None:
    oracle = local_run(fold, stamped)
    assert table_rows(lake, stream, fold) == expected_rows(oracle, fold)
    assert recorded(read_generations(lake, stream.name)).totals["rows_pending"] == oracle.pending()


@pytest.mark.parametrize(
    ("stream", "fold", "event", "first", "second"),
    [
        pytest.param(
            *case.values,
            *writers,
            id=f"{case.id}-{writers}",
            marks=USUAL if (case.id, writers) == BOTH else pytest.mark.full,
        )
        for case, writers in product(CASES, product((HERE, ON_SPARK), (HERE, ON_SPARK)))
    ],
)
def test_a_batch_that_one_writer_has_written_is_not_written_again_by_the_other(
    spark, lake, monkeypatch, writer, stream, fold, event, first, second
):
    stamped = stamp(make_commits(event, seed=4, commits=3))
    for rows in stamped:
        killed_and_repeated(spark, lake, monkeypatch, writer, stream, fold, rows, first, second)
    check_folded(lake, stream, fold, stamped)
    numbers = [row["batch_id"] for row in read_ops(lake, "batches").to_pylist()]
    assert len(numbers) == len(set(numbers))
    outcomes = Counter(run["outcome"] for run in read_ops(lake, "runs").to_pylist())
    assert outcomes == {"succeeded": 3, "failed": 3}


@pytest.mark.e2e
def test_a_batch_of_which_a_bucket_is_too_large_is_run_again_for_spark(
    spark, counted_lake, monkeypatch
):
    lake = counted_lake
    monkeypatch.setattr(live, "FETCHED_BYTES", 1)
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[1])
    drain(SparkEngine(spark), lake, COUNTS)
    check_folded(lake, COUNTS, user_counts.FOLD, COUNTED[:2])
