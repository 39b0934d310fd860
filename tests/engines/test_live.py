"""The live engine on real Delta and RocksDB, against the local engine and the replay."""

from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.stream.record import recorded
from include.streams import device_signals, user_counts
from spark_jobs.engines import live_batch
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp
from tests.deaths import die
from tests.engines.live_lakes import (
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

pytestmark = pytest.mark.spark

CASES = [
    pytest.param(SIGNALS, device_signals.FOLD, signal, id="device_signals"),
    pytest.param(COUNTS, user_counts.FOLD, user_event, id="user_counts"),
]


MARKS = (pytest.mark.e2e, pytest.mark.full)


def test_a_run_with_nothing_new_changes_nothing(spark, counted_lake):
    lake = counted_lake
    before = version_and_state(spark, lake)
    drain(SparkEngine(spark), lake, COUNTS)
    assert version_and_state(spark, lake) == before
    first, second = sorted(read_ops(lake, "runs").to_pylist(), key=lambda run: run["ended_at"])
    assert (second["batches"], second["rows_in"], second["rows_out"]) == (0, 0, 0)
    assert second["until"] == first["until"] is not None


@pytest.mark.parametrize(
    ("stream", "fold", "event"),
    [
        pytest.param(*case.values, id=case.id, marks=mark)
        for case, mark in zip(CASES, MARKS, strict=True)
    ],
)
def test_a_batch_killed_after_its_writes_is_finished_once(
    spark, lake, monkeypatch, stream, fold, event
):
    stamped = stamp(make_commits(event, seed=4, commits=3))
    append_commit(lake, stream.source, fold, stamped[0])
    drain(SparkEngine(spark), lake, stream)
    append_commit(lake, stream.source, fold, stamped[1])

    with monkeypatch.context() as patched:
        patched.setattr(live_batch.BatchWriter, "_note", die)
        with pytest.raises(StreamingQueryException):
            drain(SparkEngine(spark), lake, stream)
    drain(SparkEngine(spark), lake, stream)
    append_commit(lake, stream.source, fold, stamped[2])
    drain(SparkEngine(spark), lake, stream)

    oracle = local_run(fold, stamped)
    assert table_rows(lake, stream, fold) == expected_rows(oracle, fold)
    assert recorded(read_generations(lake, stream.name)).totals["rows_pending"] == oracle.pending()
    numbers = [row["batch_id"] for row in read_ops(lake, "batches").to_pylist()]
    assert len(numbers) == len(set(numbers))
    outcomes = Counter(run["outcome"] for run in read_ops(lake, "runs").to_pylist())
    assert outcomes == {"succeeded": 3, "failed": 1}
