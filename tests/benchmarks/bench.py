"""The speed tables of docs/speed.md: every contender on the same files, in turns, in one run.

    make bench ARGS="--only dense --rounds 3"    # also: sparse, replay, stock,
                                                 # shapes (sessions, alerts, ...)
    make bench ARGS="--only sparse --match '32 buckets'"    # Scala, and lines that say this
    make bench                                   # all; an hour and a half

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
from include.spark.conf import FORKLESS
from include.spark.submit import job_environment
from tests.benchmarks.contender import settings
from tests.benchmarks.data import write_batches
from tests.benchmarks.entries import FILES, REFERENCES, TABLES, WARM_UP, Entry
from tests.benchmarks.peak_memory import peak_memory
from tests.benchmarks.workloads import expected_result

BENCH = PROJECT / ".bench"
SCALA = PROJECT / "tests" / "benchmarks" / "flat_map_groups.scala"
# Beyond this share of the median a ratio would say more than was measured.
WIDEST_SPREAD = 0.25
MIB = 1024**2


class Measured(NamedTuple):
    """The figures of an entry's processes, in the order of the rounds."""

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
        """The median of the ratios of each round, as a machine is slower in one than in another."""
        ratios = [mine / its for mine, its in zip(self.seconds, base.seconds, strict=True)]
        median, least, most = statistics.median(ratios), min(ratios), max(ratios)
        between = f"{least:.2f} - {most:.2f}"
        is_steady = most - least <= WIDEST_SPREAD * median
        return f"{median:.2f} ({between})" if is_steady else f"spread too wide: {between}"


def run_entry(entry: Entry) -> dict[str, Any]:
    """One contender's result (see contender.py), checked against DuckDB's."""
    files, result = BENCH / entry.files, _last_json(command_of(entry), entry)
    folded = sum(shape.events for shape in FILES[entry.files]) - result["waiting"]
    expected = expected_result(entry.workload, files, folded)
    if result["result"] != expected:
        raise RuntimeError(f"{entry.label}: {result['result']} where DuckDB has {expected}")
    return result


def command_of(entry: Entry) -> list[str]:
    if entry.contender in REFERENCES:
        return scala_command(of_ours=entry.contender == "scala")
    command = [sys.executable, "-m", "tests.benchmarks.contender", entry.contender]
    command += [str(BENCH / entry.files), "--buckets", str(entry.buckets)]
    return [*command, "--workload", entry.workload]


def scala_command(of_ours: bool) -> list[str]:
    """The Scala contender through the same package's spark-shell, under the same settings.

    `of_ours`: with our file systems, too.
    """
    shell = Path(job_environment()["SPARK_HOME"]) / "bin" / "spark-shell"
    given = {k: v for k, v in settings().items() if of_ours or k not in FORKLESS}
    conf = [part for item in given.items() for part in ("--conf", "=".join(item))]
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
            each.seconds.append(_figure(each.entry, result["seconds"]))
            sizes = result["state_files_bytes"][WARM_UP - 1 :]
            each.written.extend(b - a for a, b in itertools.pairwise(sizes))
            each.peak_mib.append(result["peak_mib"])
            _say(f"round {number + 1}: {each.entry.label}: {result['seconds']}")
    return measured


def _figure(entry: Entry, seconds: list[float]) -> float:
    if entry.is_whole:
        return sum(seconds)
    return statistics.median(seconds[WARM_UP:]) * entry.scale


def table(measured: list[Measured]) -> str:
    """Markdown: medians, spread, and the ratios to the references in a round if these are steady."""
    bases = [each for each in measured if each.entry.contender in REFERENCES]
    ratios = " | ".join(f"ratio to {REFERENCES[base.entry.contender]}" for base in bases)
    lines = [
        f"| what runs | seconds per batch (median) | spread | {ratios} "
        "| state files written per batch | peak memory, MiB |",
        "|---|---|---|" + "---|" * len(bases) + "---|---|",
    ]
    for each in measured:
        spread = f"{min(each.seconds):.2f} - {max(each.seconds):.2f}"
        ratio = " | ".join(map(each.ratio_to, bases))
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


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[*TABLES, "shapes"])
    parser.add_argument("--match", default="", help="lines of a table that have this (a regex)")
    args = parser.parse_args()
    for name in [each for each in TABLES if f"{each}/".startswith(f"{args.only or each}/")]:
        compare(name, args.rounds, args.match)


def compare(name: str, rounds: int, match: str) -> None:
    entries = tuple(
        e for e in TABLES[name] if e.contender in REFERENCES or re.search(match, e.label)
    )
    for files in {entry.files for entry in entries}:
        write_batches(BENCH / files, FILES[files])
    measured = measure(entries, rounds)
    record(name, measured)
    _say(f"\n{name}\n{table(measured)}\n")


if __name__ == "__main__":
    main()
