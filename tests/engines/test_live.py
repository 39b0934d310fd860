"""The live engine on real Delta and RocksDB, against the local engine and the replay."""

import json
import random
import shutil
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from include.lake import LakeError
from include.ops import read_ops
from include.streams import SettingsError, stream_named
from spark_jobs.engines import live_batch
from spark_jobs.engines.live import read_states
from spark_jobs.engines.local import LocalFold
from spark_jobs.engines.replay import replay_fold
from spark_jobs.fold.admission import until_us
from spark_jobs.fold.records import DefinitionError
from spark_jobs.lake.batches import complete_until, last_batch
from spark_jobs.lake.row_counts import RowCountError
from spark_jobs.lake.tables import TableSchemaError
from spark_jobs.run_stream import drain
from spark_jobs.streams import device_signals, user_counts
from spark_jobs.streams.device_signals import Signal
from spark_jobs.streams.user_counts import UserEvent
from tests.bronze import EPOCH, append_commit, stamp

pytestmark = pytest.mark.spark

MINUTE_US = 60_000_000
START_US = 1_750_000_000_000_000
SIGNALS = replace(stream_named("device_signals"), buckets=5, state_partitions=2)
COUNTS = replace(stream_named("user_counts"), buckets=5, state_partitions=2)
DELAY_US = SIGNALS.watermark_delay // timedelta(microseconds=1)


def make_commits(event: Any, seed: int, commits: int = 10, size: int = 40) -> list[list[Any]]:
    """Ten minutes of events a commit, some out of order, some too late, many at one instant."""
    rng = random.Random(seed)
    made = []
    for number in range(commits):
        base = START_US + number * 10 * MINUTE_US
        times = [base + rng.randrange(-15, 11) * MINUTE_US + rng.randrange(2) for _ in range(size)]
        made.append([event(rng, time_us) for time_us in times])
    return made


def signal(rng: random.Random, time_us: int) -> Signal:
    return Signal(rng.randrange(12), time_us, rng.randrange(3))


def user_event(rng: random.Random, time_us: int) -> UserEvent:
    return UserEvent(f"user {rng.randrange(12)}", time_us)


def micros(instant: Any) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def table_rows(lake, stream, fold) -> Counter[Any]:
    names = [column.name for column in fold.output_columns]
    rows = DeltaTable(lake.table(stream.name)).to_pyarrow_table().to_pylist()
    return Counter((tuple(row[n] for n in names), micros(row["emitted_at"])) for row in rows)


def expected_rows(engine: LocalFold, fold) -> Counter[Any]:
    if fold.output_mode == "append":
        pairs = zip(engine.emitted.rows, engine.emitted.emitted_at_us, strict=True)
        return Counter((tuple(row), at_us) for row, at_us in pairs)
    states = engine.states().values()
    return Counter((tuple(fold.project(s.key, s.state)), s.changed_at_us) for s in states)


def local_run(fold, stamped) -> LocalFold:
    engine = LocalFold(fold, DELAY_US)
    for rows in stamped:
        engine.run_batch(rows)
    return engine


def stored_states(spark, lake, stream, fold) -> dict[Any, tuple[int, int]]:
    rows = read_states(spark, lake.checkpoint(stream.name, 1), fold).collect()
    return {row["key"]: (row["state"][0], row["changed_at_us"]) for row in rows}


CASES = [
    pytest.param(SIGNALS, device_signals.FOLD, signal, id="device_signals"),
    pytest.param(COUNTS, user_counts.FOLD, user_event, id="user_counts"),
]


@pytest.mark.parametrize("runs", [1, 3, 10])
@pytest.mark.parametrize(("stream", "fold", "event"), CASES)
def test_any_number_of_runs_gives_the_local_engines_table_and_state(
    spark, lake, stream, fold, event, runs
):
    stamped = stamp(make_commits(event, seed=1))
    oracle = local_run(fold, stamped)
    assert oracle.late > 0 < oracle.pending()  # the case has what makes it hard

    for number, rows in enumerate(stamped, 1):
        append_commit(lake, stream.source, fold, rows)
        if number * runs // len(stamped) > (number - 1) * runs // len(stamped):
            drain(spark, lake, stream)

    assert table_rows(lake, stream, fold) == expected_rows(oracle, fold)
    assert stored_states(spark, lake, stream, fold) == {
        key: (known.state[0], known.changed_at_us) for key, known in oracle.states().items()
    }
    last = last_batch(lake, stream.name, 1)
    measured = read_ops(lake, "batches").to_pylist()
    assert all(json.loads(row["durations_ms"])["addBatch"] > 0 for row in measured)
    assert all(row["state_bytes"] > 0 for row in measured)
    recorded = read_ops(lake, "runs").to_pylist()
    assert len(recorded) == runs
    assert sum(run["rows_in"] for run in recorded) == sum(len(rows) for rows in stamped)
    assert sum(run["rows_late"] for run in recorded) == oracle.late
    assert last["rows_pending"] == oracle.pending()
    assert micros(complete_until(lake, stream.name, 1)) == until_us(
        stamped[-1][-1].commit_us - DELAY_US
    )


@pytest.mark.parametrize(("stream", "fold", "event"), CASES)
def test_replay_of_what_live_admitted_gives_the_same(spark, lake, stream, fold, event):
    stamped = stamp(make_commits(event, seed=2))
    oracle = local_run(fold, stamped)
    for rows in stamped:
        append_commit(lake, stream.source, fold, rows)
    bronze = spark.read.format("delta").load(lake.bronze(stream.source))
    admitted = bronze.where(
        F.col("arrival_watermark").isNull()
        | (F.unix_micros("event_time") > F.unix_micros("arrival_watermark") - F.lit(DELAY_US))
    )
    until = until_us(stamped[-1][-1].commit_us - DELAY_US)

    half = (START_US + until) // 2
    first = replay_fold(admitted, fold, 5, half)
    rest = admitted.where(F.unix_micros("event_time") >= half)
    second = replay_fold(rest, fold, 5, until, base=first.states)

    states = {
        row["key"]: (row["state"][0], row["changed_at_us"]) for row in second.states.collect()
    }
    assert states == {
        key: (known.state[0], known.changed_at_us) for key, known in oracle.states().items()
    }
    if fold.output_mode == "append":
        emitted = [*first.outputs.collect(), *second.outputs.collect()]
        rows = Counter((tuple(row[:-1]), row["emitted_at_us"]) for row in emitted)
        assert rows == expected_rows(oracle, fold)


@pytest.mark.parametrize(("stream", "fold", "event"), CASES)
def test_a_table_says_what_its_columns_mean(spark, lake, stream, fold, event):
    append_commit(lake, stream.source, fold, stamp(make_commits(event, 6, 1))[0])
    drain(spark, lake, stream)
    table = DeltaTable(lake.table(stream.name))
    assert all(field.metadata["comment"] for field in table.schema().fields)
    metadata = table.metadata()
    assert metadata.description
    if fold.output_mode == "append":
        assert metadata.partition_columns == ["emitted_date"]
    else:
        assert metadata.configuration["delta.enableChangeDataFeed"] == "true"


def test_a_table_of_other_columns_is_refused_before_anything_is_read(spark, lake):
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamp(make_commits(user_event, 6, 1))[0])
    spark.range(1).write.format("delta").save(lake.table(COUNTS.name))
    with pytest.raises(TableSchemaError, match=r"has columns .*but the stream now writes"):
        drain(spark, lake, COUNTS)
    assert not Path(lake.checkpoint(COUNTS.name, 1)).exists()


@pytest.mark.parametrize(
    "change",
    [{"buckets": 6}, {"state_partitions": 3}, {"watermark_delay": timedelta(hours=1)}],
)
def test_what_the_first_run_pinned_cannot_change_unnoticed(spark, lake, change):
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamp(make_commits(user_event, 7, 1))[0])
    drain(spark, lake, COUNTS)
    before = version_and_state(spark, lake)
    with pytest.raises(SettingsError, match=f"user_counts: {next(iter(change))}.* is now"):
        drain(spark, lake, replace(COUNTS, **change))
    assert version_and_state(spark, lake) == before


def test_what_a_failed_first_run_had_is_not_pinned(spark, lake):
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamp(make_commits(user_event, 7, 1))[0])
    other = Path(lake.table(COUNTS.name))
    spark.range(1).write.format("delta").save(str(other))
    with pytest.raises(TableSchemaError):
        drain(spark, lake, COUNTS)
    shutil.rmtree(other)
    drain(spark, lake, replace(COUNTS, buckets=6))
    assert table_rows(lake, COUNTS, user_counts.FOLD).total() > 0


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("checkpoint", r"checkpoint .* is missing, but .* has batch"),
        ("new batches", r"checkpoint .* ends at batch \d+, but .* has batch"),
        ("table", r"tables/user_counts is missing, but .* has written to it"),
    ],
)
def test_a_checkpoint_and_a_table_of_other_times_are_refused(spark, lake, lost, message):
    stamped = stamp(make_commits(user_event, seed=9, commits=3))
    checkpoint, table = Path(lake.checkpoint(COUNTS.name, 1)), Path(lake.table(COUNTS.name))
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[0])
    drain(spark, lake, COUNTS)
    copy = shutil.copytree(checkpoint, checkpoint.with_name("copy"))
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[1])
    drain(spark, lake, COUNTS)
    batches = read_ops(lake, "batches").num_rows

    shutil.rmtree(table if lost == "table" else checkpoint)
    if lost == "new batches":
        copy.rename(checkpoint)
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[2])
    with pytest.raises(LakeError, match=message):
        drain(spark, lake, COUNTS)
    assert read_ops(lake, "batches").num_rows == batches


def test_an_error_in_a_state_function_is_what_the_runs_table_says(spark, lake, monkeypatch):
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamp(make_commits(user_event, 7, 1))[0])
    monkeypatch.setattr(user_counts, "FOLD", replace(user_counts.FOLD, function=broken))
    with pytest.raises(StreamingQueryException):
        drain(spark, lake, COUNTS)
    (run,) = read_ops(lake, "runs").to_pylist()
    assert "broken failed for user_id 'user" in run["error"]
    assert "ZeroDivisionError" in run["error"]


def broken(key, events, state):
    return 1 / 0


# Workers cannot import tests, so what they need of this one travels with the query.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_what_a_failed_first_batch_pinned_can_be_mended(spark, lake, monkeypatch):
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamp(make_commits(user_event, 7, 1))[0])
    with monkeypatch.context() as patched:
        patched.setattr(user_counts, "FOLD", replace(user_counts.FOLD, function=broken))
        with pytest.raises(StreamingQueryException):
            drain(spark, lake, COUNTS)
    checkpoint = lake.checkpoint(COUNTS.name, 1)
    with pytest.raises(
        SettingsError, match=f"no batch has been written yet, so delete {checkpoint}"
    ):
        drain(spark, lake, replace(COUNTS, buckets=6))
    shutil.rmtree(checkpoint)
    drain(spark, lake, replace(COUNTS, buckets=6))
    with pytest.raises(SettingsError, match="put that back"):
        drain(spark, lake, COUNTS)


def test_old_rows_of_the_batches_table_may_be_deleted(spark, lake):
    stamped = stamp(make_commits(user_event, seed=8, commits=3))
    for rows in stamped[:2]:
        append_commit(lake, COUNTS.source, user_counts.FOLD, rows)
        drain(spark, lake, COUNTS)
    newest = last_batch(lake, COUNTS.name, 1)["batch_id"]
    DeltaTable(lake.ops("batches")).delete(f"batch_id < {newest}")
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[2])
    drain(spark, lake, COUNTS)
    oracle = local_run(user_counts.FOLD, stamped)
    assert last_batch(lake, COUNTS.name, 1)["rows_pending"] == oracle.pending()
    assert last_batch(lake, COUNTS.name, 1)["total_late"] == oracle.late


def test_rows_that_do_not_add_up_fail_the_run_with_a_finding(spark, lake):
    stamped = stamp(make_commits(user_event, seed=8, commits=2))
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[0])
    drain(spark, lake, COUNTS)
    DeltaTable(lake.ops("batches")).update(updates={"total_folded": "total_folded + 1"})
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[1])
    with pytest.raises(RowCountError, match=r"ops/batches says \d+ were read, and \d+ accounted"):
        drain(spark, lake, COUNTS)
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found if row["severity"] == "error"] == ["rows_do_not_add_up"]


def test_a_run_with_nothing_new_changes_nothing(spark, lake):
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamp(make_commits(user_event, 3, 1))[0])
    drain(spark, lake, COUNTS)
    before = version_and_state(spark, lake)
    drain(spark, lake, COUNTS)
    assert version_and_state(spark, lake) == before
    first, second = sorted(read_ops(lake, "runs").to_pylist(), key=lambda run: run["ended_at"])
    assert (second["batches"], second["rows_in"], second["rows_out"]) == (0, 0, 0)
    assert second["until"] == first["until"] is not None


def version_and_state(spark, lake) -> tuple[Any, ...]:
    return (
        DeltaTable(lake.table(COUNTS.name)).version(),
        stored_states(spark, lake, COUNTS, user_counts.FOLD),
        read_ops(lake, "batches").num_rows,
    )


class KilledError(Exception):
    """Stands for the process's end at a point of a batch."""


@pytest.mark.parametrize("point", ["after_table", "after_record"])
@pytest.mark.parametrize(("stream", "fold", "event"), CASES)
def test_a_batch_killed_after_its_writes_is_finished_once(
    spark, lake, monkeypatch, stream, fold, event, point
):
    stamped = stamp(make_commits(event, seed=4, commits=3))
    append_commit(lake, stream.source, fold, stamped[0])
    drain(spark, lake, stream)
    append_commit(lake, stream.source, fold, stamped[1])

    with monkeypatch.context() as patched:
        patched.setattr(live_batch.BatchWriter, "_record", killed_in_record(point))
        with pytest.raises(Exception, match="KilledError"):
            drain(spark, lake, stream)
    drain(spark, lake, stream)
    append_commit(lake, stream.source, fold, stamped[2])
    drain(spark, lake, stream)

    oracle = local_run(fold, stamped)
    assert table_rows(lake, stream, fold) == expected_rows(oracle, fold)
    assert last_batch(lake, stream.name, 1)["rows_pending"] == oracle.pending()
    recorded = [row["batch_id"] for row in read_ops(lake, "batches").to_pylist()]
    assert len(recorded) == len(set(recorded))
    outcomes = Counter(run["outcome"] for run in read_ops(lake, "runs").to_pylist())
    assert outcomes == {"succeeded": 3, "failed": 1}


def killed_in_record(point: str):
    record = live_batch.BatchWriter._record

    def die(self, counts, batch_id):
        if point == "after_record":
            record(self, counts, batch_id)
        raise KilledError(point)

    return die


def test_a_commit_log_lost_after_the_product_commit_is_written_again(spark, lake):
    stamped = stamp(make_commits(user_event, seed=5, commits=2))
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[0])
    drain(spark, lake, COUNTS)
    forget_last_commit(Path(lake.checkpoint(COUNTS.name, 1)))
    version = DeltaTable(lake.table(COUNTS.name)).version()

    drain(spark, lake, COUNTS)
    assert DeltaTable(lake.table(COUNTS.name)).version() == version
    append_commit(lake, COUNTS.source, user_counts.FOLD, stamped[1])
    drain(spark, lake, COUNTS)

    oracle = local_run(user_counts.FOLD, stamped)
    assert table_rows(lake, COUNTS, user_counts.FOLD) == expected_rows(oracle, user_counts.FOLD)


def forget_last_commit(checkpoint: Path) -> None:
    """As if the process had died before it: Hadoop's checksum goes with the file."""
    last = max(int(f.name) for f in (checkpoint / "commits").iterdir() if f.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


def test_a_cut_commit_fails_loudly_and_writes_nothing(spark, lake):
    early, late = Signal(1, START_US, 0), Signal(1, START_US + 60 * MINUTE_US, 0)
    (stamped,) = stamp([[late, early]])
    append_commit(lake, SIGNALS.source, device_signals.FOLD, stamped[:1])
    drain(spark, lake, SIGNALS)
    append_commit(lake, SIGNALS.source, device_signals.FOLD, stamped[1:])
    with pytest.raises(Exception, match="bronze commit was cut"):
        drain(spark, lake, SIGNALS)
    assert table_rows(lake, SIGNALS, device_signals.FOLD) == Counter()
    outcomes = Counter(run["outcome"] for run in read_ops(lake, "runs").to_pylist())
    assert outcomes == {"succeeded": 1, "failed": 1}


def test_without_bronze_a_run_says_what_to_do(spark, lake):
    with pytest.raises(LakeError, match="ingest user_events first"):
        drain(spark, lake, COUNTS)
    assert not Path(lake.checkpoint(COUNTS.name, 1)).exists()


def test_an_event_field_that_bronze_does_not_have_is_refused_before_anything_runs(spark, lake):
    append_commit(lake, "signals", device_signals.FOLD, stamp([[Signal(1, START_US, 0)]])[0])
    bronze = spark.read.format("delta").load(lake.bronze("signals"))
    with pytest.raises(DefinitionError, match=r"UserEvent.user_id is string.*no such column"):
        replay_fold(bronze, user_counts.FOLD, 5, START_US)
    as_text = bronze.withColumn("device_id", F.col("device_id").cast("string"))
    with pytest.raises(DefinitionError, match=r"device_id is bigint, but bronze has string"):
        replay_fold(as_text, device_signals.FOLD, 5, START_US)
