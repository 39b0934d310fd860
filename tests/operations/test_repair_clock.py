"""A wrong clock, repaired by the job on real tables; and the command that plans it."""

from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from include.cli.__main__ import main
from include.fold.admission import micros_of
from include.lake.delta_log import dataset_of
from include.lake.generations import read_generations
from include.lake.paths import Lake, LakeError
from include.landing import bronze_commits
from include.landing.bronze_commits import append_next, bronze_rows, clock_after, read_clock
from include.landing.bronze_tables import create_tables
from include.landing.clock import RESET_KEY
from include.landing.clock_repair import newest_repair
from include.landing.ingest import ingest
from include.plans.open_stream import has_waiting_rows
from include.registry import stream_named
from spark_jobs import repair_clock as job
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.clocked import WITHOUT_CLOCK, clock_of
from tests.engines.lake_runs import with_conf
from tests.landed_files import START, Landing, signal

STREAM = stream_named("device_signals")
# The signals, without one that comes 30 days ahead.
MINUTES = (0, 20, 40, 50, 55, 60, 75, 90)
AHEAD = 30 * 24 * 60


class KilledError(Exception):
    pass


def killed(*_):
    raise KilledError


def at_minute(minute: int):
    return signal(60 * minute)


@pytest.mark.full
@pytest.mark.spark
def test_streams_go_on_as_if_the_clock_had_never_been_wrong(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    landed, engine = Landing(lake), SparkEngine(spark)

    def come(name: str, *minutes: int) -> None:
        landed.add(f"{name}.jsonl", [at_minute(minute) for minute in minutes])
        ingest(lake, WITHOUT_CLOCK)

    def run() -> None:
        with with_conf(spark, "spark.sql.shuffle.partitions", str(STREAM.state_partitions)):
            drain(engine, lake, STREAM)

    def emitted() -> list[int]:
        rows = dataset_of(lake.table(STREAM.name)).to_table(columns=["emitted_at"]).to_pylist()
        return sorted((row["emitted_at"] - START) // timedelta(minutes=1) for row in rows)

    come("a", 0, 20, 40)
    come("b", AHEAD)
    run()
    come("c", 50, 55)
    run()
    assert 50 not in emitted()
    to = START + timedelta(minutes=40)
    with monkeypatch.context() as patched:
        patched.setattr(job, "record_reset", killed)
        with pytest.raises(KilledError):
            job.repair_clock(engine, lake, WITHOUT_CLOCK, to)
    assert clock_of(lake).watermark_us == micros_of(to)
    with pytest.raises(LakeError):
        ingest(lake, WITHOUT_CLOCK)
    with pytest.raises(LakeError):
        run()
    assert has_waiting_rows(lake, STREAM)

    with with_conf(spark, "spark.sql.shuffle.partitions", str(STREAM.state_partitions)):
        job.repair_clock(engine, lake, WITHOUT_CLOCK)
    repair = newest_repair(lake, "signals")
    assert repair.is_done
    assert read_generations(lake, STREAM.name).current["bronze_version"] >= repair.reset_version
    assert len(resets(lake)) == 1
    # What the log says, and what the rows say.
    monkeypatch.setattr(bronze_commits, "read_logged_clock", lambda *_: None)
    assert clock_of(lake).watermark_us == micros_of(to)
    monkeypatch.undo()

    come("d", 60, 75)
    come("e", 90)
    run()
    until = START + timedelta(minutes=90) - STREAM.watermark_delay
    settled = [minute for minute in MINUTES if START + timedelta(minutes=minute) <= until]
    assert emitted() == settled
    assert not has_waiting_rows(lake, STREAM)


def resets(lake: Lake) -> list[str]:
    history = DeltaTable(lake.bronze("signals")).history()
    return [c for c in history if f'"{RESET_KEY}"' in (c.get("userMetadata") or "")]


def test_the_command_shows_the_plan_and_changes_nothing(lake: Lake, capsys):
    bronze_of_signals(lake, 40, AHEAD, 50)
    arguments = ["repair-clock", "signals", "--lake", lake.root]
    to = (START + timedelta(minutes=40)).isoformat()
    assert main([*arguments, "--to", to]) == 0
    assert "2026-03-01T00:40:00.000+00:00" in capsys.readouterr().out
    assert main(arguments) == 2
    assert newest_repair(lake, "signals") is None


def bronze_of_signals(lake: Lake, *minutes: int) -> None:
    """A commit for each."""
    create_tables(lake, WITHOUT_CLOCK)
    for number, minute in enumerate(minutes):
        us = micros_of(START + timedelta(minutes=minute))
        columns = {"device_id": pa.array([1], pa.int64()), "value": pa.array([1], pa.int64())}
        events = pa.table({**columns, "event_time_us": [us], "source_file": ["a.jsonl"]})
        table = DeltaTable(lake.bronze("signals"))  # before its clock is read
        before = read_clock(lake, WITHOUT_CLOCK)
        now_us = micros_of(START + timedelta(days=60 + number))
        after = clock_after(before, us, now_us)
        append_next(table, bronze_rows(WITHOUT_CLOCK, events, before, after), after)
