"""Proof that tuning tunes: from poor settings, by runs of the live engine and the tuner.

    .venv/bin/python -m tests.benchmarks.tuning            # 5 to 9 minutes on two cores

The stream starts with a profile of 16 MB, a fifth of it for writes. Each run is drained as
the Dag's task does it, and followed by the tuner; five runs are followed by a compaction.
Ends when the tuner has found nothing to do for a while, or after `--runs`.
"""

import json
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from include.care.rocksdb.history import (
    CLOCKS,
    COUNTERS,
    Batch,
    as_percent,
    changes,
    noise,
    read_history,
)
from include.care.rocksdb.profile import active_profile, complete_settings, machine_memory_bytes
from include.care.rocksdb.settings import MAX_MEMORY_MB, WRITE_BUFFER_RATIO
from include.care.rocksdb.tune_rocksdb import Outcome, format_outcome, tune_rocksdb
from include.job import recorded_run
from include.lake.ops import append_ops, read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import PROJECT
from spark_jobs.compact_state import JOB as COMPACT_STATE
from spark_jobs.engines.session_settings import session_settings
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from spark_jobs.stream_drain import drain_stream
from tests.benchmarks.contender import session
from tests.benchmarks.data import Shape
from tests.benchmarks.state_runs import QUIET, Feed, forget_state, use_project_python

BENCH = PROJECT / ".bench" / "tuning"
STREAM = stream_named("user_counts")
POOR = {MAX_MEMORY_MB: "16", WRITE_BUFFER_RATIO: "0.2"}
KEYS, ACTIVE = 400_000, 1_000
RUNS, RUNS_TO_COMPACTION, QUIET_RUNS = 45, 5, 3
FIGURE = "bytes_rewritten"


def fresh_lake() -> Lake:
    """An empty lake, with the poor profile on record as what the stream has so far."""
    root = BENCH / "lake"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    lake = Lake(str(root))
    settings = complete_settings(POOR, STREAM, machine_memory_bytes())
    row = {
        "stream": STREAM.name,
        "profile": 1,
        "created_at": datetime.now(UTC),
        "settings": json.dumps(dict(settings)),
        "reason": "deliberately poor",
        "verdict": "default",
    }
    append_ops(lake, "rocksdb_profiles", [row])
    return lake


def run_once(spark: SparkSession, lake: Lake, feed: Feed) -> Outcome:
    """What the Dag does for a run: drain what has landed, and tune."""
    feed.land()
    forget_state(spark)  # the limit on memory is of a process, and this is to be a new one
    drain(SparkEngine(spark), lake, STREAM)
    return tune_rocksdb(lake, STREAM)


def compact(spark: SparkSession, lake: Lake, feed: Feed) -> None:
    """What compact_state does to the state; a small commit forces the batches."""
    feed.land()
    forget_state(spark)
    with recorded_run(lake, COMPACT_STATE, STREAM.name, None) as record:
        drain_stream(SparkEngine(spark), lake, STREAM, record, compacting=True)


def tune(spark: SparkSession, lake: Lake, runs: int) -> None:
    """Runs and decisions, a line for each; what the tuner says of the last."""
    shapes = [Shape(KEYS, KEYS, KEYS), *[Shape(ACTIVE, KEYS, ACTIVE)] * (2 * runs)]
    feed = Feed(BENCH / "files", lake, STREAM.source, shapes)
    compact(spark, lake, feed)
    say("run  profile  memory  ratio  logs  rewritten   memory held  store ms  decision")
    quiet = 0
    for number in range(1, runs + 1):
        before = active_profile(lake, STREAM)
        outcome = run_once(spark, lake, feed)
        say(line(number, before.settings, newest(lake), outcome))
        quiet = quiet + 1 if outcome.kind == "nothing" else 0
        if quiet == QUIET_RUNS:
            break
        if number % RUNS_TO_COMPACTION == 0:
            compact(spark, lake, feed)
    say("\n" + format_outcome(outcome) + "\n")


def newest(lake: Lake) -> Batch:
    """The newest batch with data."""
    batches = read_history(lake, STREAM, 1).batches
    return [batch for batch in batches if batch.rows_in][-1]


def line(number: int, settings: dict[str, str], batch: Batch, outcome: Outcome) -> str:
    figures = batch.figures
    return (
        f"{number:3}  {batch.profile!s:>7}  {settings[MAX_MEMORY_MB]:>6}  "
        f"{settings[WRITE_BUFFER_RATIO]:>5}  {figures['logs_replayed']:4.0f}  "
        f"{figures[FIGURE]:10,.0f}  {figures['store_memory']:11,.0f}  "
        f"{figures['store_ms']:8.0f}  {outcome.kind}: {outcome.text}"
    )


def report(lake: Lake) -> str:
    """The first profile against the last, by like batches, and the noise."""
    history = read_history(lake, STREAM, 1)
    poor = history.under(1)
    tuned = history.under(active_profile(lake, STREAM).number)
    lines = [f"{len(poor)} batches under the first profile, {len(tuned)} under the last"]
    for figure in (FIGURE, "block_misses", "store_memory", "store_ms", "batch_ms"):
        lines.append(f"{figure}: {compared(poor, tuned, figure)}")
    return "\n".join(lines)


def compared(poor: Sequence[Batch], tuned: Sequence[Batch], figure: str) -> str:
    found, spread = changes(tuned, poor, figure), noise(poor, figure)
    if not found:
        return "no like batches"
    first, last = (median(b.figures[figure] for b in batches) for batches in (poor, tuned))
    noisy = "unknown" if spread is None else as_percent(spread)
    return (
        f"{as_percent(median(found))} in {len(found)} like batches (medians of all: "
        f"{first:,.0f} to {last:,.0f}; noise {noisy})"
    )


def recorded_series(lake: Lake) -> str:
    """The series as JSON, a line for each row: what tests/care/rocksdb/test_recorded_series.py replays."""
    runs = sorted(read_ops(lake, "runs").to_pylist(), key=lambda run: run["started_at"])
    batches = sorted(read_ops(lake, "batches").to_pylist(), key=lambda row: row["batch_id"])
    columns = ("run_id", "job", "outcome", "jvm_rss_bytes", "python_rss_bytes")
    lines = [{"run": {name: run[name] for name in columns}} for run in runs]
    lines += [{"batch": _short(row)} for row in batches]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `ops/batches` with what the tuner looks at."""
    columns = ("batch_id", "run_id", "profile", "rows_in", "state_bytes")
    metrics = json.loads(row["state_metrics"] or "[{}]")[0]
    wanted = {name: metrics[name] for name in (COUNTERS | CLOCKS).values() if name in metrics}
    duration = json.loads(row["durations_ms"] or "{}").get("triggerExecution")
    return {name: row[name] for name in columns} | {
        "state_metrics": json.dumps([wanted]),
        "durations_ms": json.dumps({"triggerExecution": duration}),
    }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, help="write the recorded series here")
    args = parser.parse_args()
    use_project_python()
    spark = session()
    lake = fresh_lake()
    with session_settings(spark, QUIET):
        tune(spark, lake, args.runs)
    say(report(lake))
    if args.out:
        args.out.write_text(recorded_series(lake))


if __name__ == "__main__":
    main()
