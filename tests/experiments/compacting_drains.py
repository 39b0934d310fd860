"""200 small runs of a stream: are files, bytes and the price of a run bounded when some of its drains compact?

    .venv/bin/python -m tests.experiments.compacting_drains --runs 200 --processes 12 --out .bench/compacting

A drain compacts when its start would replay more change logs than the limit: it is the ordinary drain of what
waits, under the settings `COMPACTING`. No batch is forced, no other job runs. Beside it, on the same bronze, a
checkpoint that is never compacted. All runs are in one session, whose state stores are closed before each, so that
each loads its state from the checkpoint as a new process does. The first compacting drains fail in their batch and
are repeated. Then both go on for some runs, in processes of their own on a copy of the lake, and in the session:
the figures must agree. At the end the states must be the counts that plain Python makes. A series that was ended
goes on where it stopped (`--runs 20`, ten times, is the same).
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from include.lake.paths import Lake
from include.registry import stream_named
from include.spark.conf import COMPACTING, FORKLESS, STATE, STATE_STORE, jars, job_conf
from include.spark.submit import job_environment
from include.stream_definition import load_definition
from spark_jobs.engines.checkpointed_states import read_states
from spark_jobs.engines.engine import LiveQuery
from spark_jobs.engines.live import plan_fold
from spark_jobs.job import close_state_stores
from spark_jobs.tables.product import session_settings

STREAM = stream_named("user_counts")
FOLD = load_definition(STREAM).fold
USERS, EVENTS = 2_000, 1_000
HOUR_US, START_US = 3_600_000_000, 1_749_999_600_000_000
LIMIT = 20  # change logs of one partition that a start may replay
VARIANTS = ("compacting", "never")
FAILING = 2  # compacting drains that fail once
Conf = Mapping[str, str]
STORED = re.compile(r"(\d+)(?:_.*)?\.(changelog|zip)")
FIGURES = ("files", "bytes", "replayed", "of_spark", "load_ms", "seconds")
# A run ends before Spark's maintenance thread wakes up; in this long session it would wake up.
QUIET = {f"{STATE_STORE}.maintenanceInterval": str(24 * HOUR_US // 1000)}


def land(lake: Lake, number: int) -> None:
    """Commit `number` of bronze, once: an hour of events of users, as ingestion stamps them."""
    bronze = lake.bronze(STREAM.source)
    if lake.is_delta_table(bronze) and DeltaTable(bronze).version() >= number:
        return
    rng = np.random.default_rng(number)
    hour_us = START_US + number * HOUR_US
    instants = {
        "event_time": hour_us + rng.integers(0, HOUR_US, EVENTS),
        "arrival_watermark": np.full(EVENTS, hour_us - 1000),
        "commit_watermark": np.full(EVENTS, hour_us + HOUR_US - 1000),
        "ingested_at": np.full(EVENTS, START_US + 10**15 + number * 60_000_000),
    }
    rows = {name: pa.array(at, pa.timestamp("us", tz="UTC")) for name, at in instants.items()}
    users = [f"user-{user}" for user in rng.integers(0, USERS, EVENTS).tolist()]
    rows |= {"is_clock": pa.array([False] * EVENTS), "user_id": pa.array(users)}
    rows |= {"source_file": pa.array([f"{number}.jsonl"] * EVENTS)}
    rows |= {"event_date": rows["event_time"].cast(pa.date32())}
    write_deltalake(bronze, pa.table(rows), mode="append")


def logs_to_replay(checkpoint: Path) -> int:
    """The most change logs that a start has to replay in a partition, behind its snapshot."""
    committed = (int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    newest, most = max(committed, default=-1) + 1, 0
    for partition in {path.parent for path in checkpoint.glob("state/*/*/**/*.changelog")}:
        named = [STORED.fullmatch(path.name) for path in partition.iterdir()]
        stored = {(int(n[1]), n[2]) for n in named if n and int(n[1]) <= newest}
        snapshot = max((version for version, kind in stored if kind == "zip"), default=0)
        most = max(most, sum(kind == "changelog" and v > snapshot for v, kind in stored))
    return most


def run(spark: SparkSession, lake: Lake, variant: str, fail: bool = False) -> dict[str, Any]:
    """One drain of what waits, from a checkpoint that no store has open; its figures."""
    checkpoint = Path(lake.root) / "checkpoints" / variant
    close_state_stores(spark)
    replayed = logs_to_replay(checkpoint)
    compacts = variant == "compacting" and replayed > LIMIT
    conf = COMPACTING if compacts else {}
    if fail and compacts:
        with suppress(StreamingQueryException):
            drain(spark, lake, checkpoint, conf, fail=True)
        return run(spark, lake, variant) | {"failed": True}
    began = time.monotonic()
    first = drain(spark, lake, checkpoint, conf, fail=False)
    seconds = time.monotonic() - began
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    return {
        "variant": variant,
        "compacts": compacts,
        "seconds": round(seconds, 2),
        "replayed": replayed,
        "of_spark": first["rocksdbNumReplayChangelogFiles"],
        "load_ms": first["rocksdbLoadLatencyMs"],
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }


def drain(spark: SparkSession, lake: Lake, checkpoint: Path, conf: Conf, fail: bool) -> Any:
    """The project's live engine over bronze; what Spark measured of the first batch."""

    def write(folded: DataFrame, batch_id: int) -> None:
        folded.write.format("noop").mode("overwrite").save()
        if fail:
            raise RuntimeError(f"batch {batch_id} is made to fail")

    partitions = {"spark.sql.shuffle.partitions": str(STREAM.state_partitions)}
    live = LiveQuery(lake, STREAM, FOLD, str(checkpoint), None, None, compacting=False, settings={})
    with session_settings(spark, {**QUIET, **partitions, **conf}):
        writer = plan_fold(spark, live).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        operators = [p.stateOperators[0] for p in running.recentProgress if p.stateOperators]
        return operators[0].customMetrics


def session() -> SparkSession:
    os.environ |= job_environment()
    builder = SparkSession.builder.master("local[2]").config(
        "spark.jars", ",".join(map(str, jars()))
    )
    for name, value in {**job_conf(), **STATE, **FORKLESS}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def series(spark: SparkSession, lake: Lake, numbers: range, log: Path) -> None:
    """Runs of both variants, in turns, after each commit; a line for each in `log`."""
    failures = sum(each.get("failed", False) for each in lines(log))
    for number in numbers:
        land(lake, number)
        for variant in VARIANTS if number % 2 else reversed(VARIANTS):
            figures = {"run": number, **run(spark, lake, variant, failures < FAILING)}
            failures += figures.get("failed", False)
            with log.open("a") as file:
                file.write(json.dumps(figures) + "\n")


def summary(runs: list[dict[str, Any]]) -> None:
    """Medians of the first and the last quarter of the runs, and the most there was."""
    for variant in VARIANTS:
        own = [each for each in runs if each["variant"] == variant]
        size = max(len(own) // 4, 1)
        for figure in FIGURES:
            values = [each[figure] for each in own]
            first, last = median(values[:size]), median(values[-size:])
            ratio = last / max(first, 1e-9)
            say(f"{variant:10} {figure:8} {first:>9} {last:>9} {ratio:.2f} most {max(values)}")
        for compacts in (True, False):
            took = [each["seconds"] for each in own if each["compacts"] is compacts]
            say(f"{variant:10} {compacts=}: {len(took)} runs, {median(took or [0]):.2f} s (median)")


def states_equal(spark: SparkSession, lake: Lake) -> bool:
    """Whether both checkpoints have the counts that plain Python makes of the events that are due."""
    rows = DeltaTable(lake.bronze(STREAM.source)).to_pyarrow_table()
    due = pc.subtract(pc.max(rows["commit_watermark"]), pa.scalar(STREAM.watermark_delay))
    users = rows.filter(pc.less_equal(rows["event_time"], due))["user_id"].to_pylist()
    close_state_stores(spark)
    kept = [read_states(spark, f"{lake.root}/checkpoints/{each}", FOLD) for each in VARIANTS]
    found = [{row["key"]: row["state"][0] for row in rows.collect()} for rows in kept]
    return all(counts == Counter(users) for counts in found)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--processes", type=int, default=0, help="then so many in processes")
    parser.add_argument("--out", type=Path, default=Path(".bench/compacting"))
    parser.add_argument("--only", type=int, help="one commit and its runs, in --out's copy")
    args = parser.parse_args()
    out = args.out.absolute()
    lake, copy = Lake(f"{out}/lake"), Lake(f"{out}/copy")
    if args.only is not None:
        series(session(), copy, range(args.only, args.only + 1), out / "there.jsonl")
        return
    Path(lake.root).mkdir(parents=True, exist_ok=True)
    spark, first = session(), len(lines(out / "runs.jsonl")) // len(VARIANTS)
    series(spark, lake, range(first, first + args.runs), out / "runs.jsonl")
    summary(lines(out / "runs.jsonl"))
    say(f"states are the counts: {states_equal(spark, lake)}")
    if args.processes:
        go_on(spark, lake, copy, range(first + args.runs, first + args.runs + args.processes))


def go_on(spark: SparkSession, lake: Lake, copy: Lake, numbers: range) -> None:
    """The series further on, in the session and in processes, and whether the two agree."""
    out = Path(lake.root).parent
    shutil.copytree(lake.root, copy.root)
    series(spark, lake, numbers, out / "here.jsonl")
    for number in numbers:
        command = [sys.executable, "-m", "tests.experiments.compacting_drains", "--out", str(out)]
        subprocess.run([*command, "--only", str(number)], check=True)
    names = ("run", "variant", "compacts", "replayed", "of_spark", "files")
    pairs = list(zip(lines(out / "here.jsonl"), lines(out / "there.jsonl"), strict=True))
    agree = sum(all(a[n] == b[n] for n in names) for a, b in pairs)
    say(f"runs in processes of their own that agree: {agree} of {len(pairs)}")
    say(f"states are the counts: {states_equal(spark, lake)}, {states_equal(spark, copy)}")


if __name__ == "__main__":
    main()
