"""Who takes landed files in cheaper, processes of one machine or Spark, by how much has landed.

    .venv/bin/python -m tests.benchmarks.ingest                              # 1 to 256 MiB, both
    .venv/bin/python -m tests.benchmarks.ingest --mib 5000 --by "a cluster"  # and how it grows

JSON lines in files of up to 16 MiB, into a new lake. The cluster is a master and two workers of a
core and 1 GiB each, here. Memory is the most that the job holds with all its children: on a
cluster that is the driver alone, its workers' is theirs.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from include.lake.ops import read_ops
from include.lake.paths import Lake, made_lake
from include.registry import source_named
from include.settings import PROJECT
from include.spark.submit import job_environment, submit_command
from tests.benchmarks.peak_memory import peak_memory
from tests.e2e.standalone_cluster import standalone_cluster

MIB = 1024**2
JOB = str(Path(__file__).with_name("ingest_job.py"))
SIZES = (1, 16, 64, 128, 256)
LARGEST_FILE = 16 * MIB
SOURCE = source_named("user_events")
START = datetime(2026, 3, 1, tzinfo=UTC)
HERE, LOCAL, CLUSTER = WRITERS = ("this machine", "Spark in one JVM", "a cluster")


class Cost(NamedTuple):
    wall: float
    cpu: float  # of the job and its children; a cluster's workers are not
    mib: float


def land(lake: Lake, mib: float) -> int:
    """Land so much, and return how many rows that is."""
    landing = Path(lake.landing(SOURCE.name))
    landing.mkdir(parents=True)
    left, rows, files = int(mib * MIB), 0, 0
    while left > 0:
        lines = block(min(left, LARGEST_FILE), files)
        (landing / f"{files:05}.jsonl").write_text("".join(lines))
        left -= sum(map(len, lines))
        rows, files = rows + len(lines), files + 1
    return rows


def block(size: int, hour: int) -> list[str]:
    """Lines of that many bytes together, their instants spread over an hour."""
    few = _lines(START, 1_000)
    return _lines(START + timedelta(hours=hour), size * len(few) // sum(map(len, few)))


def _lines(at: datetime, count: int) -> list[str]:
    step = timedelta(hours=1) / count
    return [
        json.dumps(
            {
                "user_id": f"user-{n * 7919 % 20_000}",
                "event_time": (at + n * step).isoformat(),
                "event_type": ("click", "purchase")[n % 10 == 0],
                "value": n % 100 / 4,
            }
        )
        + "\n"
        for n in range(count)
    ]


def take_in(by: str, mib: float, folder: Path, master: str | None) -> Cost:
    """Ingest so much into a new lake. RuntimeError when not all of it is in bronze."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        lake = made_lake(root)
        rows = land(lake, mib)
        cost = cost_of(command(by, lake, master))
        (run,) = read_ops(lake, "runs").to_pylist()
        if (run["outcome"], run["rows_bronze"]) != ("succeeded", rows):
            raise RuntimeError(f"{rows:,} rows landed, and the run says {run}")
    return cost


def command(by: str, lake: Lake, master: str | None) -> list[str]:
    arguments = ["--source", SOURCE.name, "--lake", lake.root]
    if by == HERE:
        return [sys.executable, JOB, "here", *arguments]
    *options, _ = submit_command("ingest_source", [], master=master)
    return [*options, JOB, "spark", *arguments]


def cost_of(job: list[str]) -> Cost:
    before, began = cpu_of_children(), time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            job, cwd=PROJECT, env=os.environ | job_environment(), stdout=said, stderr=said
        )
        peak = peak_memory(process)
        wall = time.monotonic() - began
        if process.wait():
            said.seek(0)
            raise RuntimeError(f"{' '.join(job[:4])} failed:\n{said.read()[-3000:]}")
    return Cost(wall, cpu_of_children() - before, peak / MIB)


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(writers: list[str], sizes: list[float], rounds: int, folder: Path) -> None:
    """All in turn, round after round; each is printed as it ends, then the medians."""
    say("| MiB landed | taken in by | wall s | spread | CPU s | peak memory, MiB |")
    say("|---|---|---|---|---|---|")
    with standalone_cluster(folder, 2, 1) if CLUSTER in writers else nullcontext() as cluster:
        masters = {LOCAL: "local[2]", CLUSTER: cluster.master if cluster else None}
        for mib in sizes:
            costs: dict[str, list[Cost]] = {by: [] for by in writers}
            for _ in range(rounds):
                for by, measured in costs.items():
                    measured.append(take_in(by, mib, folder, masters.get(by)))
            for by, measured in costs.items():
                say(line(mib, by, measured))


def line(mib: float, by: str, costs: list[Cost]) -> str:
    walls = [cost.wall for cost in costs]
    wall, cpu, peak = (statistics.median(of) for of in zip(*costs, strict=True))
    spread = f"{min(walls):.1f} - {max(walls):.1f}"
    return f"| {mib:,g} | {by} | {wall:.1f} | {spread} | {cpu:.1f} | {peak:,.0f} |"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=float, nargs="+", default=SIZES)
    parser.add_argument("--by", choices=WRITERS, nargs="+", default=[HERE, LOCAL])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    bench = PROJECT / ".bench"
    bench.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bench, prefix="ingest-") as folder:
        measure(args.by, args.mib, args.rounds, Path(folder))


if __name__ == "__main__":
    main()
