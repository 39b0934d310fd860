"""The live engine on real Delta and RocksDB, against the local engine and the replay."""

import json
from collections import Counter

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from include.coverage.record import recorded
from include.fold.admission import micros_of, until_us
from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.stream_result import complete_until
from include.streams import device_signals, user_counts
from spark_jobs.engines import live_batch
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit, stamp
from tests.deaths import die
from tests.engines.live_lakes import (
    COUNTS,
    DELAY_US,
    SIGNALS,
    expected_rows,
    local_run,
    make_commits,
    signal,
    stored_states,
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
# Each kind of table once; the restarts of both are in the long run.
RUNS = {("user_counts", 1)}


@pytest.mark.parametrize(
    ("stream", "fold", "event", "runs"),
    [
        pytest.param(
            *case.values,
            runs,
            id=f"{case.id}-{runs}",
            marks=() if (case.id, runs) in RUNS else pytest.mark.full,
        )
        for case in CASES
        for runs in (1, 3, 10)
    ],
)
def test_any_number_of_runs_gives_the_local_engines_table_and_state(
    spark, lake, stream, fold, event, runs
):
    stamped = stamp(make_commits(event, seed=1))
    oracle = local_run(fold, stamped)
    assert oracle.late > 0 < oracle.pending()  # the case has what makes it hard

    for number, rows in enumerate(stamped, 1):
        append_commit(lake, stream.source, fold, rows)
        if number * runs // len(stamped) > (number - 1) * runs // len(stamped):
            drain(SparkEngine(spark), lake, stream)

    assert table_rows(lake, stream, fold) == expected_rows(oracle, fold)
    check_what_its_columns_mean(lake, stream, fold)
    assert not lake.is_delta_table(lake.dead_letters(stream.name))
    assert stored_states(spark, lake, stream, fold) == {
        key: (known.state[0], known.changed_at_us) for key, known in oracle.states().items()
    }
    totals = recorded(read_generations(lake, stream.name)).totals
    measured = read_ops(lake, "batches").to_pylist()
    assert all(json.loads(row["durations_ms"])["addBatch"] > 0 for row in measured)
    assert all(row["state_bytes"] > 0 for row in measured)
    ran = read_ops(lake, "runs").to_pylist()
    assert len(ran) == runs
    assert sum(run["rows_in"] for run in ran) == sum(len(rows) for rows in stamped)
    assert sum(run["rows_late"] for run in ran) == oracle.late
    assert totals["rows_pending"] == oracle.pending()
    assert micros_of(complete_until(lake, stream.name)) == until_us(
        stamped[-1][-1].commit_us - DELAY_US
    )


# tests/engines/test_timeouts_live.py has another replay in the usual run.


def check_what_its_columns_mean(lake, stream, fold):
    table = DeltaTable(lake.table(stream.name))
    assert all(field.metadata["comment"] for field in table.schema().fields)
    metadata = table.metadata()
    assert metadata.description
    if fold.output_mode == "append":
        assert metadata.partition_columns == ["emitted_date"]
    else:
        assert metadata.configuration["delta.enableChangeDataFeed"] == "true"


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
