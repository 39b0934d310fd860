"""A stream that keeps dead letters, on real Delta and RocksDB: live, killed, restated, rebuilt, mended."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from include.fold.admission import micros_of
from include.fold.definition import DeadLetter
from include.lake.dead_letters import COLUMNS
from include.lake.ops import read_ops
from include.stream.manifest import savepoints_of
from include.stream.rebuild_plan import RebuildOptions
from include.stream_definition import load_definition
from spark_jobs import run_stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from spark_jobs.run_stream import drain
from spark_jobs.tables.dead_letters import DeadLetters
from tests.bronze import append_commit
from tests.changed_stream import FOLD, RECORDS, STREAM, deployed_in
from tests.deaths import KilledError
from tests.engines.lake_runs import table_of, with_conf
from tests.fold import oracle
from tests.fold.arrivals import dead_letters_in
from tests.late_lakes import DAYS_US, at, between, commits, live_result, rows_of

# The simulator has it without a JVM.
pytestmark = [pytest.mark.spark, pytest.mark.full]

# It fails for one event in five, and for the silence of one device.
FRAGILE = f"""{RECORDS}
class Total(NamedTuple):
    signals: int

def fold(key, events, state):
    if state.hasTimedOut:
        yield Row(key, "silent", state.get.signals)
        if key == 2:
            raise LookupError("nobody knows the device 2")
        return
    for event in events:
        total = Total((state.get.signals if state.exists else 0) + 1)
        state.update(total)
        state.setTimeoutTimestamp(timestampUs=state.clock_us + 2 * 3_600_000_000)
        yield Row(key, "signal", total.signals)
        if event.event_time_us % 5 == 0:
            raise ValueError(f"no time for {{event.event_time_us}}")
{FOLD}"""
MENDED = FRAGILE.replace("% 5 == 0", "% 5 == 7").replace("key == 2", "key == -1")
KEEPING = replace(STREAM, on_error="dead_letter")


def dead_letters_of(lake, fold) -> Counter[oracle.DeadLetter]:
    rows = DeltaTable(lake.dead_letters(KEEPING.name)).to_pyarrow_table().to_pylist()
    assert all(row["at_date"] == row["at"].date() for row in rows)
    calls = []
    for row in rows:
        known = {name: row[name] for name in DeadLetter._fields if name != "at_us"}
        calls.append(DeadLetter(at_us=micros_of(row["at"]), **known))
    calls.sort(key=lambda call: call.number)
    return dead_letters_in(fold, calls)


def of_interval(dead_letters: Counter[Any], from_us: int, until_us: int) -> Counter[Any]:
    return Counter({c: n for c, n in dead_letters.items() if from_us <= c.at_us < until_us})


def truth(fold, rows, until_us: int) -> oracle.Result:
    """What all rows come to, late ones too."""
    in_time = [row._replace(arrival_us=None, commit_us=until_us - 1) for row in rows]
    return oracle.expected(fold, oracle.calls_of(fold), in_time, delay_us=0)


def drain_all(spark, lake) -> None:
    with with_conf(spark, "spark.sql.shuffle.partitions", str(KEEPING.state_partitions)):
        drain(SparkEngine(spark), lake, KEEPING)


def die_before(self, dead_letters):
    raise KilledError("before")


def die_after(self, dead_letters):
    APPEND(self, dead_letters)
    raise KilledError("after")


APPEND = DeadLetters.append


def test_what_is_a_dead_letter_is_a_function_of_bronze(spark, lake, tmp_path, monkeypatch):
    deployed = deployed_in(tmp_path, monkeypatch, KEEPING)
    deployed.deploy(FRAGILE)
    fold = load_definition(KEEPING).fold
    stamped = commits(seed=3, days=3, late=4)
    rows, result = rows_of(stamped), live_result(KEEPING, fold, stamped)

    # Live, and killed in its first batch on both sides of the write.
    for commit in stamped[:4]:
        append_commit(lake, KEEPING.source, fold, commit)
    for die in (die_before, die_after):
        monkeypatch.setattr(DeadLetters, "append", die)
        with pytest.raises(StreamingQueryException):
            drain_all(spark, lake)
    monkeypatch.setattr(DeadLetters, "append", APPEND)
    with monkeypatch.context() as by_spark:  # what the driver has written
        by_spark.setattr(run_stream, "is_small", lambda _: False)
        drain_all(spark, lake)
    for commit in stamped[4:]:
        append_commit(lake, KEEPING.source, fold, commit)
    drain_all(spark, lake)
    assert {cause.event is None for cause in result.dead_letters} == {True, False}
    assert table_of(lake, KEEPING, fold) == result.table
    assert dead_letters_of(lake, fold) == result.dead_letters
    check_record(lake, result.dead_letters)

    # A savepoint's `events` counts the dead letters, so it is clean, and a day is made again.
    start_us, end_us = DAYS_US[1], DAYS_US[2]
    restate(SparkEngine(spark), lake, KEEPING, at(start_us), at(end_us))
    right = truth(fold, rows, end_us)
    now = dead_letters_of(lake, fold)
    assert of_interval(now, start_us, end_us) == of_interval(right.dead_letters, start_us, end_us)
    assert of_interval(now, 0, start_us) == of_interval(result.dead_letters, 0, start_us)
    assert of_interval(now, end_us, 2**62) == of_interval(result.dead_letters, end_us, 2**62)
    assert now != result.dead_letters
    table = table_of(lake, KEEPING, fold)
    assert between(table, start_us, end_us) == between(right.table, start_us, end_us)
    done = newest_run(lake, "restate_interval")
    counted = of_interval(right.dead_letters, start_us, end_us)
    assert done["rows_dead_lettered"] + done["timeouts_dead_lettered"] == sum(counted.values())

    # A rebuild takes late rows in, and makes dead letters of what fails.
    rebuild(SparkEngine(spark), lake, KEEPING, RebuildOptions())
    until_us = oracle.until(rows, 5_000)
    right = truth(fold, rows, until_us)
    assert dead_letters_of(lake, fold) == right.dead_letters
    assert table_of(lake, KEEPING, fold) == right.table

    # Mended, it takes them all.
    deployed.deploy(MENDED)
    mended = load_definition(KEEPING).fold
    rebuild(SparkEngine(spark), lake, KEEPING, RebuildOptions(full_refresh=True))
    assert dead_letters_of(lake, mended) == Counter()
    assert table_of(lake, KEEPING, mended) == truth(mended, rows, until_us).table


def check_record(lake, dead_letters: Counter[oracle.DeadLetter]) -> None:
    """Counts, findings, comments, and no commit twice."""
    events = sum(n for call, n in dead_letters.items() if call.event is not None)
    timeouts = sum(dead_letters.values()) - events
    batches = read_ops(lake, "batches").to_pylist()
    assert sum(batch["rows_dead_lettered"] for batch in batches) == events
    assert sum(batch["timeouts_dead_lettered"] for batch in batches) == timeouts
    assert min(filter(None, (b["dead_letters_from"] for b in batches))) == at(
        min(call.at_us for call in dead_letters)
    )
    assert newest_run(lake, "run_stream")["rows_dead_lettered"] == batches_of_newest(lake, batches)
    table = DeltaTable(lake.dead_letters(KEEPING.name))
    done = Counter(commit["operation"] for commit in table.history())
    retained = done["WRITE"] - done["RESTORE"]  # what the job that was killed behind it has written
    assert retained == sum(batch["dead_letters_from"] is not None for batch in batches)
    comments = [field.metadata.get("comment") for field in table.schema().fields]
    assert comments == [column.comment for column in COLUMNS]
    findings = read_ops(lake, "findings", {"finding": "rows_dead_lettered"}).to_pylist()
    assert sum(finding["count"] for finding in findings) == events + timeouts
    assert all("--full-refresh" in finding["action"] for finding in findings)
    assert savepoints_of(lake, KEEPING.name)


def newest_run(lake, job: str) -> dict[str, Any]:
    runs = read_ops(lake, "runs", {"job": job}).to_pylist()
    return max(runs, key=lambda run: run["ended_at"])


def batches_of_newest(lake, batches) -> int:
    run_id = newest_run(lake, "run_stream")["run_id"]
    return sum(batch["rows_dead_lettered"] for batch in batches if batch["run_id"] == run_id)
