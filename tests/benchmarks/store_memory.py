"""The most memory a run's JVM holds under a setting: each run in a process of its own.

    .venv/bin/python -m tests.benchmarks.store_memory            # about 6 minutes

On the checkpoint of a million keys with 20 change logs to replay, which sensitivity.py has
prepared. Java's heap is in it, so only large differences mean something.
"""

import statistics
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import psutil

from tests.benchmarks.contender import session
from tests.benchmarks.sensitivity import VARIANTS, WORKLOADS, prepare, run_on_copy
from tests.benchmarks.state_runs import use_project_python

(START,) = (workload for workload in WORKLOADS if workload.name == "start")
DEFAULT = "default"
NAMES = (
    DEFAULT,
    "boundedMemoryUsage=false",
    "maxMemoryUsageMB=16",
    "maxMemoryUsageMB=64",
    "maxMemoryUsageMB=1024",
)


def one_run(name: str) -> None:
    """One run under the setting; prints its store memory and its JVM's peak, in bytes."""
    spark = session()
    figures = run_on_copy(spark, START, prepare(spark, START), VARIANTS.get(name, {}))
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    status = (Path("/proc") / str(psutil.Process(pid).pid) / "status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    sys.stdout.write(f"RESULT {figures['store memory']:.0f} {int(peak) * 1024}\n")


def in_new_process(name: str) -> tuple[int, int]:
    command = [sys.executable, "-m", "tests.benchmarks.store_memory", "--one", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (result,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    store, peak = result.split()[1:]
    return int(store), int(peak)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=NAMES)
    args = parser.parse_args()
    use_project_python()
    if args.one:
        one_run(args.one)
        return
    measured: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}
    for _ in range(args.rounds):
        for name in NAMES:
            measured[name].append(in_new_process(name))
    for name, pairs in measured.items():
        stores, peaks = zip(*pairs, strict=True)
        sys.stdout.write(
            f"{name}: store memory {statistics.median(stores) / 1e6:.0f} MB, JVM's peak "
            f"{statistics.median(peaks) / 1e6:.0f} MB ({min(peaks) / 1e6:.0f} - "
            f"{max(peaks) / 1e6:.0f})\n"
        )


if __name__ == "__main__":
    main()
