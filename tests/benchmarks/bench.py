"""The speed table of the README: every contender on the same files, in one run.

    make bench                       # three rounds; about half an hour on two cores
    make bench ARGS="--rounds 1"
    make bench ARGS="--only backfill --rounds 1"     # tests/benchmarks/backfill.py instead

Each contender runs in a process of its own, in turns, round after round. A contender's
first two batches (start-up, empty state, a cold JVM) are left out. The machine should be
idle: compare only within one run.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NamedTuple

from include.settings import PROJECT
from include.spark.submit import job_environment
from tests.benchmarks import backfill
from tests.benchmarks.contender import settings
from tests.benchmarks.data import Shape, write_batches

BENCH = PROJECT / ".bench"
SCALA = PROJECT / "tests" / "benchmarks" / "flat_map_groups.scala"
# The first batches start Python and warm the JVM up; four are measured.
WARM_UP = 2
DENSE = [Shape(events=500_000, keys=100_000, active_keys=100_000)] * (WARM_UP + 4)
# Stock Python per-key APIs take minutes a batch at full size: a tenth, scaled.
TENTH = [Shape(events=50_000, keys=10_000, active_keys=10_000)] * (WARM_UP + 4)
SPARSE = [
    Shape(events=1_000_000, keys=1_000_000, active_keys=1_000_000),
    *[Shape(events=10_000, keys=1_000_000, active_keys=1_000)] * (WARM_UP + 3),
]


class Entry(NamedTuple):
    """A line of the table: who runs, on which files, and what its time is multiplied by."""

    label: str
    contender: str
    files: str
    buckets: int = 32
    scale: int = 1


DENSE_ENTRIES = (
    Entry("Spark's native `groupBy().count()` (no user code)", "native", "dense"),
    Entry("Scala `flatMapGroupsWithState`", "scala", "dense"),
    Entry("**plain Python function, live engine, 32 buckets**", "ours", "dense", 32),
    Entry("the same, 256 buckets", "ours", "dense", 256),
    Entry("PySpark `transformWithState` (Row) by key", "transform_with_state", "tenth", scale=10),
    Entry("PySpark `applyInPandasWithState` by key", "apply_in_pandas", "tenth", scale=10),
)
SPARSE_ENTRIES = (
    Entry("Scala `flatMapGroupsWithState`", "scala", "sparse"),
    *(Entry(f"live engine, {n} buckets", "ours", "sparse", n) for n in (32, 256, 1024, 4096)),
)


def run_entry(entry: Entry) -> dict[str, Any]:
    """One contender's result (see contender.py), checked: every event must be in its state."""
    command = [sys.executable, "-m", "tests.benchmarks.contender", entry.contender]
    command += [str(BENCH / entry.files), "--buckets", str(entry.buckets)]
    result = _last_json(scala_command() if entry.contender == "scala" else command, entry.files)
    expected = sum(
        s.events for s in {"dense": DENSE, "tenth": TENTH, "sparse": SPARSE}[entry.files]
    )
    if result["counted"] != expected:
        raise RuntimeError(f"{entry.label}: counted {result['counted']} of {expected} events")
    return result


def scala_command() -> list[str]:
    """The Scala contender through the same package's spark-shell, under the same settings."""
    shell = Path(job_environment()["SPARK_HOME"]) / "bin" / "spark-shell"
    conf = [part for item in settings().items() for part in ("--conf", "=".join(item))]
    return [str(shell), "--master", "local[2]", *conf]


def _last_json(command: list[str], files: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=BENCH) as checkpoint:
        environment = os.environ | job_environment()
        environment |= {"BENCH_FILES": str(BENCH / files), "BENCH_CHECKPOINT": checkpoint}
        # Only the shell reads it, as a person would type it: with -i it stays for more.
        with SCALA.open() as script:
            done = subprocess.run(
                command,
                env=environment,
                cwd=PROJECT,
                stdin=script,
                text=True,
                capture_output=True,
                check=False,
            )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    if not lines:
        raise RuntimeError(f"{command[:4]} gave no result:\n{(done.stdout + done.stderr)[-3000:]}")
    return dict(json.loads(lines[-1]))


def measure(entries: tuple[Entry, ...], rounds: int) -> list[tuple[Entry, list[float], list[int]]]:
    """Seconds of each entry's steady batches over all rounds, and bytes they wrote."""
    seconds: dict[Entry, list[float]] = {entry: [] for entry in entries}
    written: dict[Entry, list[int]] = {entry: [] for entry in entries}
    for number in range(rounds):
        for entry in entries:
            result = run_entry(entry)
            seconds[entry] += [s * entry.scale for s in result["seconds"][WARM_UP:]]
            sizes = result["state_files_bytes"][WARM_UP - 1 :]
            written[entry] += [b - a for a, b in itertools.pairwise(sizes)]
            _say(f"round {number + 1}: {entry.label}: {result['seconds']}")
    return [(entry, seconds[entry], written[entry]) for entry in entries]


def table(measured: list[tuple[Entry, list[float], list[int]]], reference: str) -> str:
    """Markdown: median, spread, and the ratio to the reference contender."""
    base = statistics.median(next(s for e, s, _ in measured if e.contender == reference))
    lines = [
        f"| what runs | seconds per batch (median) | spread | ratio to {reference} | state files written per batch |",
        "|---|---|---|---|---|",
    ]
    for entry, seconds, written in measured:
        median = statistics.median(seconds)
        size = f"{statistics.median(written) / 1e6:.2f} MB" if written else "-"
        lines.append(
            f"| {entry.label} | {median:.2f} | {min(seconds):.2f} - {max(seconds):.2f} "
            f"| {median / base:.2f} | {size} |"
        )
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["dense", "sparse", "backfill"])
    args = parser.parse_args()
    if args.only == "backfill":
        backfill.measure(list(backfill.COMPARED), backfill.FULL, args.rounds)
        return
    for name, shapes in (("dense", DENSE), ("tenth", TENTH), ("sparse", SPARSE)):
        write_batches(BENCH / name, shapes)
    for name, entries in (("dense", DENSE_ENTRIES), ("sparse", SPARSE_ENTRIES)):
        if args.only in (None, name):
            measured = measure(entries, args.rounds)
            _say(f"\n{name}\n{table(measured, 'scala')}\n")


if __name__ == "__main__":
    main()
