"""A thousand small runs of one stream in one session: do files, bytes, seconds and memory stay flat?

    .venv/bin/python -m tests.benchmarks.soak --runs 1000 --out .bench/soak

Each run lands a file, ingests it, drains it, checks the state and compacts it when that is due; once in
fifty, as once a day, the tables are cared for. A series that was interrupted goes on where it stopped.
`ops` grows by some rows a run; all else is to stay flat. (`steady_state.py` has a JVM for each run.)
The seconds of CPU are of all processes: on a machine that does other things they say more.
"""

import json
import socket
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from include.care.check_checkpoint import check_checkpoint, record_check
from include.care.maintain_ops import maintain_ops
from include.care.plan_care import plan_table_care
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.limits import TABLE_CARE
from include.registry import source_named
from spark_jobs.compact_state import compact
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from spark_jobs.maintain_table import maintain
from spark_jobs.run_stream import drain
from tests.benchmarks.steady_state import STREAM, land, say, session, state_on_disk

RUNS_BETWEEN_CARE = 50


def soak(spark: SparkSession, root: Path, runs: int) -> list[dict[str, Any]]:
    """The figures of each run, also of those that an earlier call made."""
    log, lake = root / "runs.jsonl", Lake(str(root / "lake"))
    Path(lake.root).mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    for number in range(len(done) + 1, runs + 1):
        figures = {"run": number, **run_once(spark, lake, number)}
        with log.open("a") as file:
            file.write(json.dumps(figures) + "\n")
        done.append(figures)
    return done


def run_once(spark: SparkSession, lake: Lake, number: int) -> dict[str, Any]:
    """One landing and what follows it; then what lies on disk, and the most memory it took."""
    land(lake, number)
    began, cpu_s = time.monotonic(), cpu_seconds()
    ingest(lake, source_named(STREAM.source))
    ingested = time.monotonic()
    drain(SparkEngine(spark), lake, STREAM)
    drained = time.monotonic()
    result = check_checkpoint(lake, STREAM)
    record_check(lake, result)
    if result.compaction.needed:
        compact(SparkEngine(spark), lake, STREAM)
    close_state_stores(spark)  # as a job's end does
    end_callbacks(spark)
    if number % RUNS_BETWEEN_CARE == 0:
        care_for_tables(spark, lake)
    run = max(
        read_ops(lake, "runs", {"job": "run_stream"}).to_pylist(), key=lambda r: r["ended_at"]
    )
    return {
        "ingest_s": round(ingested - began, 2),
        "drain_s": round(drained - ingested, 2),
        "cpu_s": round(cpu_seconds() - cpu_s, 2),
        "jvm_rss": run["jvm_rss_bytes"],
        "python_rss": run["python_rss_bytes"],
        "lake_files": sum(1 for file in Path(lake.root).rglob("*") if file.is_file()),
        **state_on_disk(lake),
    }


def end_callbacks(spark: SparkSession) -> None:
    """End what py4j keeps of queries that have ended, until their JVM does: a connection and a thread
    each, with some MB that delta-rs keeps for that thread."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    for connection in list(gateway._callback_server.connections):
        if connection.socket is not None:
            connection.socket.shutdown(socket.SHUT_RDWR)


def cpu_seconds() -> float:
    """What this process, its JVM and the Python workers, those that have ended too, took until now."""
    this = psutil.Process()
    taken = [process.cpu_times() for process in [this, *this.children(recursive=True)]]
    return float(sum(t.user + t.system + t.children_user + t.children_system for t in taken))


def care_for_tables(spark: SparkSession, lake: Lake) -> None:
    """What the Dag `table_maintenance` does."""
    plans = plan_table_care(lake, TABLE_CARE, datetime.now(UTC))
    of_spark = [plan.table for plan in plans if plan.table.lease and plan.needs_care]
    maintain(spark, lake, of_spark, TABLE_CARE)
    maintain_ops(lake, plans, TABLE_CARE)


def summary(done: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown: the median of each figure in the first, the middle and the last tenth."""
    part = max(1, len(done) // 10)
    middle = len(done) // 2
    parts = (done[:part], done[middle : middle + part], done[-part:])
    yield "| figure | first tenth | middle | last tenth |\n|---|---|---|---|"
    for figure in list(done[0])[1:]:
        cells = [f"{statistics.median(run[figure] for run in runs):,.4g}" for runs in parts]
        yield f"| {figure} | {' | '.join(cells)} |"


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(".bench/soak"))
    args = parser.parse_args()
    spark = session()
    done = soak(spark, args.out.absolute(), args.runs)
    spark.stop()
    say("\n".join(summary(done)))


if __name__ == "__main__":
    main()
