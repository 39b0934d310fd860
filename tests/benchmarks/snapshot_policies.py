"""Who makes the snapshots: a compaction run now and then, or every run for itself?

    .venv/bin/python -m tests.benchmarks.snapshot_policies            # about 8 minutes

Each policy drains the same small runs into a checkpoint of its own, in one JVM. What a run
costs beyond them (the start of a JVM, 20 s and more) comes on top for each compaction run.
"""

import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from include.care.rocksdb.profile import choose_profile
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import PROJECT
from include.spark.conf import COMPACTING, STATE_STORE
from tests.benchmarks.contender import session
from tests.benchmarks.data import Shape
from tests.benchmarks.state_runs import Feed, measured_run, use_project_python

BENCH = PROJECT / ".bench" / "snapshot_policies"
STREAM = stream_named("user_counts")
OURS = choose_profile([], [], STREAM).conf()
KEYS, ACTIVE, RUNS = 200_000, 1_000, 24
SUMS = ("files written", "bytes uploaded", "logs replayed", "CPU ms", "run ms")
UNLOAD, MIN_DELTAS = f"{STATE_STORE}.unloadOnCommit", f"{STATE_STORE}.minDeltasForSnapshot"


class Policy(NamedTuple):
    """What every run runs under, and after how many versions a compaction run follows."""

    name: str
    conf: Mapping[str, str]
    compact_after: int | None = None


POLICIES = (
    Policy("nobody, as Spark would have it", {MIN_DELTAS: "10"}),
    Policy("nobody, and none are prepared", {}),
    Policy("a compaction run after 20 versions", {}, 20),
    Policy("every run for itself, 5 versions apart", {UNLOAD: "true", MIN_DELTAS: "5"}),
    Policy("every run for itself, 10 versions apart", {UNLOAD: "true", MIN_DELTAS: "10"}),
    Policy("every run for itself, 20 versions apart", {UNLOAD: "true", MIN_DELTAS: "20"}),
)


class Totals(NamedTuple):
    figures: dict[str, float]
    compactions: int
    most_replayed: float
    last: dict[str, float]  # of the last run


def follow(spark: SparkSession, policy: Policy, runs: int) -> Totals:
    """What `runs` sparse runs under the policy come to, compaction runs included."""
    lake, checkpoint = Lake(str(BENCH / "lake")), BENCH / "checkpoint"
    for old in (Path(lake.root), checkpoint):
        shutil.rmtree(old, ignore_errors=True)
    shapes = [Shape(KEYS, KEYS, KEYS)] + [Shape(ACTIVE, KEYS, ACTIVE)] * (2 * runs)
    feed = Feed(BENCH / "files", lake, STREAM.source, shapes)
    feed.land()
    measured_run(spark, lake, STREAM, checkpoint, {**OURS, **COMPACTING})

    measured, compactions, versions = [], 0, 0
    for _ in range(runs):
        feed.land()
        measured.append(measured_run(spark, lake, STREAM, checkpoint, {**OURS, **policy.conf}))
        versions += 2  # the batch, and the one without data that settles the rest
        if policy.compact_after is not None and versions > policy.compact_after:
            feed.land()
            measured.append(measured_run(spark, lake, STREAM, checkpoint, {**OURS, **COMPACTING}))
            compactions, versions = compactions + 1, 0
    figures = {name: sum(run[name] for run in measured) for name in SUMS}
    most_replayed = max(run["logs replayed"] for run in measured)
    return Totals(figures, compactions, most_replayed, measured[-1])


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    args = parser.parse_args()
    use_project_python()
    spark = session()
    follow(spark, POLICIES[0], 2)  # warms the JVM up
    header = (
        "who makes the snapshots",
        *SUMS,
        "most logs replayed",
        "compaction runs",
        "checkpoint files",
        "checkpoint bytes",
    )
    lines = [_row(header), _row("---" for _ in header)]
    for policy in POLICIES:
        totals = follow(spark, policy, args.runs)
        cells = [f"{totals.figures[name]:,.0f}" for name in SUMS]
        cells += [f"{totals.most_replayed:,.0f}", str(totals.compactions)]
        cells += [f"{totals.last[n]:,.0f}" for n in ("checkpoint files", "checkpoint bytes")]
        lines.append(_row((policy.name, *cells)))
        sys.stdout.write(f"{lines[-1]}\n")
        sys.stdout.flush()
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _row(cells) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
