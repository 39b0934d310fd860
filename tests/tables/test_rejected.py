"""A stream that rejects, on real Delta and RocksDB: live, killed, recomputed, reseeded, mended."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from include.fold.admission import micros_of
from include.fold.emitted import Rejected
from include.lake.ops import read_ops
from include.lake.stream_result import COLUMNS
from include.plans.reseed_plan import ReseedOptions
from include.savepoints.manifest import savepoints_of
from include.stream_definition import load_definition
from spark_jobs import stream_drain
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from spark_jobs.tables.rejected import RejectedCalls
from tests.bronze import append_commit
from tests.changed_stream import FOLD, RECORDS, STREAM, deployed_in
from tests.deaths import KilledError
from tests.engines.lake_runs import table_of, with_conf
from tests.fold import oracle
from tests.fold.arrivals import rejected_in
from tests.late_lakes import DAYS_US, at, between, commits, live_result, rows_of

# tests/simulator/test_rejected_rows.py has it without a JVM.
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
REJECTING = replace(STREAM, on_error="quarantine")


def rejected_of(lake, fold) -> Counter[oracle.Rejected]:
    rows = DeltaTable(lake.rejected(REJECTING.name)).to_pyarrow_table().to_pylist()
    assert all(row["at_date"] == row["at"].date() for row in rows)
    calls = []
    for row in rows:
        known = {name: row[name] for name in Rejected._fields if name != "at_us"}
        calls.append(Rejected(at_us=micros_of(row["at"]), **known))
    calls.sort(key=lambda call: call.number)
    return rejected_in(fold, calls)


def of_interval(rejected: Counter[Any], from_us: int, until_us: int) -> Counter[Any]:
    return Counter({c: n for c, n in rejected.items() if from_us <= c.at_us < until_us})


def truth(fold, rows, until_us: int) -> oracle.Result:
    """What all rows come to, late ones too."""
    in_time = [row._replace(arrival_us=None, commit_us=until_us - 1) for row in rows]
    return oracle.expected(fold, oracle.calls_of(fold), in_time, delay_us=0)


def drain_all(spark, lake) -> None:
    with with_conf(spark, "spark.sql.shuffle.partitions", str(REJECTING.state_partitions)):
        drain(SparkEngine(spark), lake, REJECTING)


def die_before(self, rejected, app_id, batch_id):
    raise KilledError("before")


def die_after(self, rejected, app_id, batch_id):
    APPEND(self, rejected, app_id, batch_id)
    raise KilledError("after")


APPEND = RejectedCalls.append_once


def test_what_is_rejected_is_a_function_of_bronze(spark, lake, tmp_path, monkeypatch):
    deployed = deployed_in(tmp_path, monkeypatch, REJECTING)
    deployed.deploy(FRAGILE)
    fold = load_definition(REJECTING).fold
    stamped = commits(seed=3, days=3, late=4)
    rows, result = rows_of(stamped), live_result(REJECTING, fold, stamped)

    # Live, and killed in its first batch on both sides of the write.
    for commit in stamped[:4]:
        append_commit(lake, REJECTING.source, fold, commit)
    for die in (die_before, die_after):
        monkeypatch.setattr(RejectedCalls, "append_once", die)
        with pytest.raises(StreamingQueryException):
            drain_all(spark, lake)
    monkeypatch.setattr(RejectedCalls, "append_once", APPEND)
    with monkeypatch.context() as by_spark:  # what the driver has written
        by_spark.setattr(stream_drain, "is_small", lambda _: False)
        drain_all(spark, lake)
    for commit in stamped[4:]:
        append_commit(lake, REJECTING.source, fold, commit)
    drain_all(spark, lake)
    assert {cause.event is None for cause in result.rejected} == {True, False}
    assert table_of(lake, REJECTING, fold) == result.table
    assert rejected_of(lake, fold) == result.rejected
    check_record(lake, result.rejected)

    # A savepoint's `events` counts the rejected ones, so it is clean, and a day is made again.
    start_us, end_us = DAYS_US[1], DAYS_US[2]
    recompute(SparkEngine(spark), lake, REJECTING, at(start_us), at(end_us))
    right = truth(fold, rows, end_us)
    now = rejected_of(lake, fold)
    assert of_interval(now, start_us, end_us) == of_interval(right.rejected, start_us, end_us)
    assert of_interval(now, 0, start_us) == of_interval(result.rejected, 0, start_us)
    assert of_interval(now, end_us, 2**62) == of_interval(result.rejected, end_us, 2**62)
    assert now != result.rejected
    table = table_of(lake, REJECTING, fold)
    assert between(table, start_us, end_us) == between(right.table, start_us, end_us)
    done = newest_run(lake, "recompute_interval")
    counted = of_interval(right.rejected, start_us, end_us)
    assert done["rows_rejected"] + done["timeouts_rejected"] == sum(counted.values())

    # A reseed takes late rows in, and rejects what of them fails.
    reseed(SparkEngine(spark), lake, REJECTING, ReseedOptions())
    until_us = oracle.until(rows, 5_000)
    right = truth(fold, rows, until_us)
    assert rejected_of(lake, fold) == right.rejected
    assert table_of(lake, REJECTING, fold) == right.table

    # Mended, it takes them all.
    deployed.deploy(MENDED)
    mended = load_definition(REJECTING).fold
    reseed(SparkEngine(spark), lake, REJECTING, ReseedOptions(recompute=True))
    assert rejected_of(lake, mended) == Counter()
    assert table_of(lake, REJECTING, mended) == truth(mended, rows, until_us).table


def check_record(lake, rejected: Counter[oracle.Rejected]) -> None:
    """Counts, findings, comments, and no commit twice."""
    events = sum(n for call, n in rejected.items() if call.event is not None)
    timeouts = sum(rejected.values()) - events
    batches = read_ops(lake, "batches").to_pylist()
    assert sum(batch["rows_rejected"] for batch in batches) == events
    assert sum(batch["timeouts_rejected"] for batch in batches) == timeouts
    assert min(filter(None, (b["rejected_from"] for b in batches))) == at(
        min(call.at_us for call in rejected)
    )
    assert newest_run(lake, "run_stream")["rows_rejected"] == batches_of_newest(lake, batches)
    table = DeltaTable(lake.rejected(REJECTING.name))
    writes = [commit for commit in table.history() if commit["operation"] == "WRITE"]
    assert len(writes) == sum(batch["rejected_from"] is not None for batch in batches)
    comments = [field.metadata.get("comment") for field in table.schema().fields]
    assert comments == [column.comment for column in COLUMNS]
    findings = read_ops(lake, "findings", {"finding": "rows_rejected"}).to_pylist()
    assert sum(finding["count"] for finding in findings) == events + timeouts
    assert all("--recompute" in finding["action"] for finding in findings)
    assert read_ops(lake, "findings", {"finding": "key_rejected_again"}).num_rows
    assert savepoints_of(lake, REJECTING.name)
    assert all(savepoint.code.endswith("!") for savepoint in savepoints_of(lake, REJECTING.name))


def newest_run(lake, job: str) -> dict[str, Any]:
    runs = read_ops(lake, "runs", {"job": job}).to_pylist()
    return max(runs, key=lambda run: run["ended_at"])


def batches_of_newest(lake, batches) -> int:
    run_id = newest_run(lake, "run_stream")["run_id"]
    return sum(batch["rows_rejected"] for batch in batches if batch["run_id"] == run_id)
