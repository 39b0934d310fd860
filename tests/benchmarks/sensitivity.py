"""Which settings of the state stores move what on our workloads, above the noise.

    .venv/bin/python -m tests.benchmarks.sensitivity --rounds 2       # 15 minutes and more

One JVM runs a stream on copies of one prepared checkpoint, a setting at a time, with our
defaults in between. A figure has moved when all its values lie outside those of the defaults.
The machine should be idle; counters and bytes do not mind if it is not.
"""

import shutil
import statistics
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from include.care.rocksdb.settings import SETTINGS
from include.care.rocksdb.tune_rocksdb import choose_profile
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import PROJECT
from include.spark.conf import COMPACTING, STATE_STORE
from tests.benchmarks.contender import session
from tests.benchmarks.data import Shape
from tests.benchmarks.state_runs import (
    CLOCKS,
    Feed,
    copy_folder,
    measured_run,
    use_project_python,
)

BENCH = PROJECT / ".bench" / "sensitivity"
STREAM = stream_named("user_counts")
OURS = choose_profile([], [], STREAM).conf()
KEYS, LARGE = 200_000, 1_000_000
# Runs before the first measured one: the JVM gets faster.
WARM_UP = 4
# A smaller part than this is no effect, whatever the noise.
LEAST_SHARE = 0.03


class Workload(NamedTuple):
    """A prepared checkpoint, and the run that is measured on it."""

    name: str
    what: str
    keys: int
    replayed_runs: int  # sparse runs before, whose change logs wait to be replayed
    events: int  # of the measured run, over as many keys
    conf: dict[str, str]


WORKLOADS = (
    Workload("dense", "200,000 keys, all touched", KEYS, 1, KEYS, {}),
    Workload("sparse", "200,000 keys, 1,000 touched", KEYS, 1, 1_000, {}),
    Workload("start", "1,000,000 keys, 20 change logs to replay", LARGE, 10, 1_000, {}),
    Workload("compact", "200,000 keys, a compacting run", KEYS, 10, 1_000, COMPACTING),
)


DEFAULT = "default"
# By Spark's short names; each is tried alone, the rest as in our default profile.
TRIED = (
    {"boundedMemoryUsage": "false"},
    {"maxMemoryUsageMB": "16"},
    {"maxMemoryUsageMB": "64"},
    {"maxMemoryUsageMB": "1024"},
    {"writeBufferCacheRatio": "0.2"},
    {"writeBufferCacheRatio": "0.8"},
    {"maxMemoryUsageMB": "16", "writeBufferCacheRatio": "0.8"},
    {"writeBufferSizeMB": "1"},
    {"writeBufferSizeMB": "8"},
    {"maxWriteBufferNumber": "6"},
    {"boundedMemoryUsage": "false", "blockCacheSizeMB": "1"},
    {"boundedMemoryUsage": "false", "blockCacheSizeMB": "128"},
    {"blockSizeKB": "64"},
    {"compression": "lz4"},
    {"compression": "none"},
    {"minDeltasForSnapshot": "1"},
    {"minDeltasForSnapshot": "10"},
    {"changelogCheckpointing.enabled": "false"},
    {"trackTotalNumberOfRows": "true"},
    {"resetStatsOnLoad": "false"},
    {"compactOnCommit": "true"},
    {"compactOnCommit": "false"},  # for the compacting run, where it is true
    {"allowFAllocate": "false"},
    {"verifyNonEmptyFilesInZip": "false"},
)
VARIANTS: dict[str, dict[str, str]] = {
    ", ".join(f"{name}={value}" for name, value in tried.items()): {
        SETTINGS[name].full_name: value for name, value in tried.items()
    }
    for tried in TRIED
}
VARIANTS["unloadOnCommit=true"] = {f"{STATE_STORE}.unloadOnCommit": "true"}

Values = dict[str, dict[str, list[float]]]  # setting -> figure -> values


def prepare(spark: SparkSession, workload: Workload) -> Lake:
    """Bronze, and the checkpoint that the workload's measured run starts from; made once."""
    folder = BENCH / workload.name
    lake, checkpoint = Lake(str(folder / "lake")), folder / "checkpoint"
    if (folder / "prepared").exists():
        return lake
    for half_made in (Path(lake.root), checkpoint):
        shutil.rmtree(half_made, ignore_errors=True)
    sparse = Shape(1_000, workload.keys, 1_000)
    measured = Shape(workload.events, workload.keys, workload.events)
    shapes = [Shape(workload.keys, workload.keys, workload.keys)]
    shapes += [sparse] * workload.replayed_runs + [measured]
    feed = Feed(folder / "files", lake, STREAM.source, shapes)
    feed.land()
    measured_run(spark, lake, STREAM, checkpoint, {**OURS, **COMPACTING})
    for _ in range(workload.replayed_runs):
        feed.land()
        measured_run(spark, lake, STREAM, checkpoint, OURS)
    feed.land()
    (folder / "prepared").touch()
    return lake


def measure(spark: SparkSession, workload: Workload, rounds: int) -> Values:
    """Every setting once a round, the default several times, in one order and then in the other."""
    lake = prepare(spark, workload)
    values: Values = defaultdict(lambda: defaultdict(list))
    for _ in range(WARM_UP):
        run_on_copy(spark, workload, lake, {})
    for number in range(rounds):
        for name in _order(number):
            figures = run_on_copy(spark, workload, lake, VARIANTS.get(name, {}))
            for figure, value in figures.items():
                values[name][figure].append(value)
            _say(f"  {workload.name} {name}: {figures['run ms']:.0f} ms")
    return values


def run_on_copy(
    spark: SparkSession, workload: Workload, lake: Lake, settings: dict[str, str]
) -> dict[str, float]:
    copy = copy_folder(BENCH / workload.name / "checkpoint", BENCH / "run")
    return measured_run(spark, lake, STREAM, copy, {**OURS, **workload.conf, **settings})


def _order(number: int) -> list[str]:
    names = list(VARIANTS)
    quarter = len(names) // 4 + 1
    order = []
    for start in range(0, len(names), quarter):
        order += [DEFAULT, *names[start : start + quarter]]
    return order[::-1] if number % 2 else order


class Effect(NamedTuple):
    figure: str
    default: float
    value: float
    noise: float  # how far the values of the default lie apart


def effects(values: Values, name: str) -> Iterator[Effect]:
    """What moved under a setting: what lies outside of all values of the default.

    What is noisy must also be further away than these are apart.
    """
    for figure, seen in values[name].items():
        base = values[DEFAULT][figure]
        effect = Effect(
            figure, statistics.median(base), statistics.median(seen), max(base) - min(base)
        )
        change = abs(effect.value - effect.default)
        outside = min(seen) > max(base) or max(seen) < min(base)
        clear = change > effect.noise or figure not in CLOCKS
        if outside and clear and change >= LEAST_SHARE * max(abs(effect.default), 1):
            yield effect


def report(workload: Workload, values: Values) -> str:
    """Markdown: a line for each setting that moved something."""
    lines = [
        f"\n### {workload.name}: {workload.what}\n",
        "| setting | counters and bytes that moved | clocks that moved (noise) |",
        "|---|---|---|",
    ]
    quiet = []
    for name in VARIANTS:
        moved = list(effects(values, name))
        counted = "; ".join(_line(e) for e in moved if e.figure not in CLOCKS)
        noisy = "; ".join(f"{_line(e)} ({_number(e.noise)})" for e in moved if e.figure in CLOCKS)
        if moved:
            lines.append(f"| {name} | {counted or '-'} | {noisy or '-'} |")
        else:
            quiet.append(name)
    base = values[DEFAULT]
    defaults = (
        f"{n} {_number(statistics.median(base[n]))} "
        f"({_number(min(base[n]))} - {_number(max(base[n]))})"
        for n in base
    )
    lines.append(f"\nNothing moved: {', '.join(quiet) or '-'}.\n")
    lines.append(f"The default, median and range: {', '.join(defaults)}.")
    return "\n".join(lines)


def _line(effect: Effect) -> str:
    change = ""
    if effect.default:
        change = f" ({100 * (effect.value / effect.default - 1):+.0f} %)"
    return f"{effect.figure} {_number(effect.default)} to {_number(effect.value)}{change}"


def _number(value: float) -> str:
    return f"{value / 1e6:,.2f} M" if abs(value) >= 1e5 else f"{value:,.0f}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=[w.name for w in WORKLOADS])
    args = parser.parse_args()
    use_project_python()
    spark = session()
    reports = []
    for workload in WORKLOADS:
        if args.only in (None, workload.name):
            reports.append(report(workload, measure(spark, workload, args.rounds)))
    _say("\n".join(reports))


if __name__ == "__main__":
    main()
