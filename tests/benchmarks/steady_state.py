"""Sixty small runs of one stream, each a new JVM, with and without compaction.

    .venv/bin/python -m tests.benchmarks.steady_state --runs 60 --out .bench/steady

Each run is what the stream's Dag does: the same commands, the same checks, the same decision.
(Only ingestion stays in one JVM here: it touches no state.) Prints a line per run, and at the
end the plot of docs/state.md. A series that was interrupted goes on where it stopped.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from include.care.check_checkpoint import check_checkpoint, record_check
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.registry import source_named, stream_named
from include.spark.conf import FORKLESS, STATE, jars, job_conf
from include.spark.submit import job_environment, submit_command

STREAM = stream_named("user_counts")
USERS, EVENTS = 2_000, 1_000
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
VARIANTS = ("with", "without")


def series(spark: SparkSession, root: Path, compacting: bool, runs: int) -> list[dict[str, Any]]:
    """The figures of each run, also of those that an earlier call made."""
    log = root / "runs.jsonl"
    lake = Lake(str(root / "lake"))
    Path(lake.root).mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    for number in range(len(done) + 1, runs + 1):
        land(lake, number)
        ingest(lake, source_named(STREAM.source))
        figures = {"run": number, **run_once(lake, compacting)}
        with log.open("a") as file:
            file.write(json.dumps(figures) + "\n")
        say(f"{root.name} {figures}")
        done.append(figures)
    return done


def land(lake: Lake, number: int) -> None:
    """A file of events of the hour `number`."""
    rng = random.Random(number)
    start = FIRST_DAY + timedelta(hours=number)
    rows = (
        {
            "event_time": (start + timedelta(seconds=rng.randrange(3600))).isoformat(),
            "user_id": f"user-{rng.randrange(USERS)}",
            "event_type": "view",
            "value": 1.0,
        }
        for _ in range(EVENTS)
    )
    folder = Path(lake.landing(STREAM.source))
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(row) for row in rows)
    (folder / f"{number:04}.jsonl").write_text(text + "\n")


def run_once(lake: Lake, compacting: bool) -> dict[str, Any]:
    """One drain, its check, and the compaction if one is due; then what lies on disk."""
    seconds = submit("run_stream", lake)
    result = check_checkpoint(lake, STREAM)
    record_check(lake, result)
    compaction_seconds = None
    if compacting and result.compaction.needed:
        compaction_seconds = submit("compact_state", lake)
    return {
        "seconds": round(seconds, 1),
        "compaction_seconds": compaction_seconds and round(compaction_seconds, 1),
        **load_of_last_run(lake),
        **state_on_disk(lake),
    }


def submit(job: str, lake: Lake) -> float:
    """Seconds that the job took, JVM start and all."""
    command = submit_command(
        job, ["--stream", STREAM.name, "--lake", lake.root], STREAM, "local[2]"
    )
    began = time.monotonic()
    done = subprocess.run(
        command, env=os.environ | job_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr[-4000:]}")
    return time.monotonic() - began


def load_of_last_run(lake: Lake) -> dict[str, int]:
    """Change logs replayed by the newest run's first batch, and its milliseconds of loading."""
    batches = read_ops(lake, "batches", {"stream": STREAM.name}).to_pylist()
    runs = read_ops(lake, "runs", {"job": "run_stream", "outcome": "succeeded"}).to_pylist()
    newest = max(runs, key=lambda run: run["ended_at"])["run_id"]
    first = min((b for b in batches if b["run_id"] == newest), key=lambda b: b["batch_id"])
    (metrics,) = json.loads(first["state_metrics"])
    return {
        "replayed": metrics["rocksdbNumReplayChangelogFiles"],
        "load_ms": metrics["rocksdbLoadLatencyMs"],
    }


def state_on_disk(lake: Lake) -> dict[str, int]:
    files = [file for file in Path(lake.checkpoint(STREAM.name, 1)).rglob("*") if file.is_file()]
    return {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}


def plot(title: str, unit: str, lines: Sequence[Sequence[float]]) -> str:
    """A chart in Mermaid's words, which GitHub draws."""
    drawn = "\n".join(f"    line [{', '.join(f'{value:g}' for value in line)}]" for line in lines)
    return (
        f'```mermaid\nxychart-beta\n    title "{title}"\n    x-axis "run" 1 --> {len(lines[0])}\n'
        f'    y-axis "{unit}"\n{drawn}\n```'
    )


def summary(done: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Markdown: each figure in the first, the middle and the last ten runs."""
    yield "| | compaction | runs 1-10 | middle ten | last ten |\n|---|---|---|---|---|"
    for figure in ("files", "bytes", "replayed", "load_ms", "seconds"):
        for variant, runs in done.items():
            middle = len(runs) // 2
            parts = (runs[:10], runs[middle - 5 : middle + 5], runs[-10:])
            cells = [f"{statistics.median(run[figure] for run in part):,.4g}" for part in parts]
            yield f"| {figure} | {variant} | {' | '.join(cells)} |"
    for variant, runs in done.items():
        cost = [run["compaction_seconds"] for run in runs if run["compaction_seconds"]]
        if cost:
            yield f"\n{variant}: {len(cost)} compactions, {statistics.median(cost):.1f} s (median)"


def session() -> SparkSession:
    os.environ |= job_environment()
    builder = SparkSession.builder.master("local[1]").config(
        "spark.jars", ",".join(map(str, jars()))
    )
    for name, value in (job_conf() | STATE | FORKLESS).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path(".bench/steady"))
    parser.add_argument("--only", choices=VARIANTS)
    args = parser.parse_args()
    spark = session()
    done = {
        variant: series(spark, args.out.absolute() / variant, variant == "with", args.runs)
        for variant in VARIANTS
        if args.only in (None, variant)
    }
    spark.stop()
    for figure, unit in (("files", "files"), ("replayed", "change logs replayed")):
        lines = [[run[figure] for run in runs] for runs in done.values()]
        say(plot(f"{unit}: {' and '.join(done)} compaction", unit, lines))
    say("\n".join(summary(done)))


if __name__ == "__main__":
    main()
