"""The speed tables of docs/speed.md: every contender on the same files, in turns, in one run.

    make bench ARGS="--only dense --rounds 3"    # also: sparse, stock, peers (PyFlink, bytewax),
                                                 # shapes (sessions, alerts, ...), price, history,
                                                 # backfill, kafka; plot draws what there is
    make bench ARGS="--only sparse --match '32 buckets'"    # Scala, and lines that say this
    make bench                                   # the first five; an hour and a half

Each contender runs in a process of its own, round after round. A process's first two batches
(start-up, empty state, a cold JVM) are left out, and the median of the others is its figure; the
spread is that of the processes. The machine should be idle: compare only within one run. All
figures, versions and the machine are written to .bench/<what>.json, too.
"""

import importlib.metadata
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NamedTuple

from include.settings import PROJECT
from include.spark.submit import job_environment
from tests.benchmarks import backfill, history, kafka, price
from tests.benchmarks.contender import settings
from tests.benchmarks.data import Shape, write_batches
from tests.benchmarks.peak_memory import peak_memory
from tests.benchmarks.peers import PACKAGES, peer_command, plot_command
from tests.benchmarks.workloads import WORKLOADS, expected_result

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
# Of other workloads than a count; a fifth of the events, for there are many contenders.
SHAPES = {
    "even": [Shape(events=100_000, keys=20_000, active_keys=20_000)] * (WARM_UP + 4),
    "zipf": [Shape(events=100_000, keys=20_000, active_keys=20_000, zipf=1.1)] * (WARM_UP + 4),
    "once": [Shape(events=100_000, keys=100_000, active_keys=100_000)] * (WARM_UP + 4),
    "four": [Shape(events=100_000, keys=25_000, active_keys=25_000)] * (WARM_UP + 4),
}

# Beyond this share of the median a ratio would say more than was measured.
WIDEST_SPREAD = 0.25
MIB = 1024**2


class Entry(NamedTuple):
    """A line of the table: who runs, on which files, and what its time is multiplied by."""

    label: str
    contender: str
    files: str
    buckets: int = 32
    scale: int = 1
    workload: str = "counts"


class Measured(NamedTuple):
    """What the processes of an entry came to, in the order of the rounds."""

    entry: Entry
    seconds: list[float]  # a process's median batch
    written: list[float]  # bytes of state files a batch; none of contenders that do not say
    peak_mib: list[float]  # the most memory that the process and its children held together

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def figures(self) -> dict[str, list[float]]:
        return {"seconds": self.seconds, "written": self.written, "peak_mib": self.peak_mib}

    def ratio_to(self, base: "Measured") -> str:
        """Of each round by itself, for a machine is slower in one than in another: the median."""
        ratios = [mine / its for mine, its in zip(self.seconds, base.seconds, strict=True)]
        median, least, most = statistics.median(ratios), min(ratios), max(ratios)
        between = f"{least:.2f} - {most:.2f}"
        is_steady = most - least <= WIDEST_SPREAD * median
        return f"{median:.2f} ({between})" if is_steady else f"spread too wide: {between}"


DENSE_ENTRIES = (
    Entry("Spark's native `groupBy().count()` (no user code)", "native", "dense"),
    Entry("Scala `flatMapGroupsWithState`", "scala", "dense"),
    Entry("**plain Python function, live engine, 32 buckets**", "ours", "dense", 32),
    *(Entry(f"the same, {n} buckets", "ours", "dense", n) for n in (8, 256)),
)
STOCK_ENTRIES = (
    DENSE_ENTRIES[1],
    DENSE_ENTRIES[2],
    Entry("PySpark `transformWithState` (Row) by key", "transform_with_state", "tenth", scale=10),
    Entry("PySpark `applyInPandasWithState` by key", "apply_in_pandas", "tenth", scale=10),
)
PEER_ENTRIES = (
    DENSE_ENTRIES[1],
    DENSE_ENTRIES[2],
    Entry("bytewax 0.21.1, two processes, a snapshot a batch", "bytewax", "dense"),
    Entry("PyFlink 2.3.0, RocksDB, a checkpoint each 5 s", "pyflink", "tenth", scale=10),
)
SPARSE_ENTRIES = (
    Entry("Scala `flatMapGroupsWithState`", "scala", "sparse"),
    *(
        Entry(f"live engine, {n} buckets", "ours", "sparse", n)
        for n in (8, 16, 32, 256, 1024, 4096)
    ),
)


def shape_entries(files: str, workload: str) -> tuple[Entry, ...]:
    """Scala's function, ours, and Spark's own where it has one."""
    entries = [
        Entry("Scala `flatMapGroupsWithState`", "scala", files, workload=workload),
        Entry("live engine, 32 buckets", "ours", files, workload=workload),
    ]
    if WORKLOADS[workload].native is not None:
        entries.append(Entry("Spark's own, no user code", "native", files, workload=workload))
    return tuple(entries)


def run_entry(entry: Entry) -> dict[str, Any]:
    """One contender's result (see contender.py), checked against DuckDB's."""
    files, result = BENCH / entry.files, _last_json(command_of(entry), entry)
    folded = sum(shape.events for shape in FILES[entry.files]) - result["waiting"]
    expected = expected_result(entry.workload, files, folded)
    if result["result"] != expected:
        raise RuntimeError(f"{entry.label}: {result['result']} where DuckDB has {expected}")
    return result


def command_of(entry: Entry) -> list[str]:
    if entry.contender == "scala":
        return scala_command()
    if entry.contender in PACKAGES:
        return peer_command(entry.contender, BENCH)
    command = [sys.executable, "-m", "tests.benchmarks.contender", entry.contender]
    command += [str(BENCH / entry.files), "--buckets", str(entry.buckets)]
    return [*command, "--workload", entry.workload]


def scala_command() -> list[str]:
    """The Scala contender through the same package's spark-shell, under the same settings."""
    shell = Path(job_environment()["SPARK_HOME"]) / "bin" / "spark-shell"
    conf = [part for item in settings().items() for part in ("--conf", "=".join(item))]
    return [str(shell), "--master", "local[2]", *conf]


def _last_json(command: list[str], entry: Entry) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=BENCH) as checkpoint:
        environment = os.environ | job_environment()
        environment |= {"BENCH_FILES": str(BENCH / entry.files), "BENCH_CHECKPOINT": checkpoint}
        environment["BENCH_WORKLOAD"] = entry.workload
        # Only the shell reads it, as a person would type it: with -i it stays for more.
        with SCALA.open() as script, tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                command, env=environment, cwd=PROJECT, stdin=script, stdout=said, stderr=said
            )
            peak = peak_memory(process)
            said.seek(0)
            text = said.read()
    lines = [line for line in text.splitlines() if line.startswith('{"seconds"')]
    if not lines:
        raise RuntimeError(f"{command[:4]} gave no result:\n{text[-3000:]}")
    return {**json.loads(lines[-1]), "peak_mib": peak / MIB}


def measure(entries: tuple[Entry, ...], rounds: int) -> list[Measured]:
    """All entries in turn, round after round."""
    measured = [Measured(entry, [], [], []) for entry in entries]
    for number in range(rounds):
        for each in measured:
            result = run_entry(each.entry)
            each.seconds.append(statistics.median(result["seconds"][WARM_UP:]) * each.entry.scale)
            sizes = result["state_files_bytes"][WARM_UP - 1 :]
            each.written.extend(b - a for a, b in itertools.pairwise(sizes))
            each.peak_mib.append(result["peak_mib"])
            _say(f"round {number + 1}: {each.entry.label}: {result['seconds']}")
    return measured


def table(measured: list[Measured], reference: str) -> str:
    """Markdown: medians, spread, and the ratio to the reference contender if that is steady."""
    base = next(each for each in measured if each.entry.contender == reference)
    lines = [
        f"| what runs | seconds per batch (median) | spread | ratio to {reference} "
        "in a round | state files written per batch | peak memory, MiB |",
        "|---|---|---|---|---|---|",
    ]
    for each in measured:
        spread = f"{min(each.seconds):.2f} - {max(each.seconds):.2f}"
        ratio = each.ratio_to(base)
        size = f"{statistics.median(each.written) / 1e6:.2f} MB" if each.written else "-"
        peak = f"{statistics.median(each.peak_mib):,.0f}"
        lines.append(
            f"| {each.entry.label} | {each.median:.2f} | {spread} | {ratio} | {size} | {peak} |"
        )
    return "\n".join(lines)


def record(name: str, measured: list[Measured]) -> None:
    """All figures, with what they were measured on."""
    versions = {of: importlib.metadata.version(of) for of in ("pyspark", "delta-spark", "pyarrow")}
    machine = {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        **versions,
    }
    entries = [each.entry._asdict() | each.figures() for each in measured]
    text = json.dumps({"machine": machine, "entries": entries}, indent=1)
    (BENCH / f"{name.replace('/', '-')}.json").write_text(text)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


FILES = {"dense": DENSE, "tenth": TENTH, "sparse": SPARSE, **SHAPES}
TABLES = {
    "dense": DENSE_ENTRIES,
    "stock": STOCK_ENTRIES,
    "sparse": SPARSE_ENTRIES,
    "peers": PEER_ENTRIES,
} | {
    f"shapes/{files}/{workload}": shape_entries(files, workload)
    for files, workload in [
        *(("even", workload) for workload in WORKLOADS),
        *((files, "counts") for files in ("zipf", "once", "four")),
        ("zipf", "sessions"),
    ]
}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", choices=[*TABLES, "shapes", "price", "history", "backfill", "kafka", "plot"]
    )
    parser.add_argument("--messages", type=int, default=1_000_000, help="of the topic of `kafka`")
    parser.add_argument("--match", default="", help="lines of a table that have this (a regex)")
    args = parser.parse_args()
    if args.only == "backfill":
        backfill.measure(list(backfill.COMPARED), backfill.FULL, args.rounds)
    elif args.only == "price":
        _say(price.table(price.measure(BENCH, args.rounds)))
    elif args.only == "kafka":
        _say(kafka.measure(BENCH, args.messages, args.rounds))
    elif args.only == "plot":
        subprocess.run(plot_command(BENCH), check=True)
        _say(f"drawn: {BENCH / 'speed.svg'}")
    elif args.only == "history":
        _say(history.measure(BENCH, args.rounds))
    else:
        for name in [each for each in TABLES if f"{each}/".startswith(f"{args.only or each}/")]:
            compare(name, args.rounds, args.match)


def compare(name: str, rounds: int, match: str) -> None:
    entries = tuple(e for e in TABLES[name] if e.contender == "scala" or re.search(match, e.label))
    for files in {entry.files for entry in entries}:
        write_batches(BENCH / files, FILES[files])
    measured = measure(entries, rounds)
    record(name, measured)
    _say(f"\n{name}\n{table(measured, 'scala')}\n")


if __name__ == "__main__":
    main()
