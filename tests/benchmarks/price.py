"""What a scheduled run costs: its two jobs for a thousand new events, and all its steps for none.

    make bench ARGS="--only price --rounds 5"

Each step is a process of its own, with the command of the Dag's task, over one lake that grows by
three hours a round: for the first each stream of the source has a JVM, for the second they share
one, for the third nothing of Java, Python, jars and lake is in the system's page cache. A first
round fills that and is left out. CPU is that of the process and of all it waited for: not of
Spark's Python workers. The JVM is as jobs start it.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from include.lake.paths import Lake, made_lake
from include.registry import source_named, streams_of
from include.settings import PROJECT, Stream
from include.spark.submit import job_environment, submit_command
from tests.benchmarks import jvm_of_jobs
from tests.benchmarks.run_parts import PARTS, parts_of

EVENTS, USERS = 1_000, 200
START = datetime(2026, 3, 1, tzinfo=UTC)
SOURCE = source_named("user_events")
FIRST, *OTHERS = streams_of(SOURCE.name)
INGEST, RUN = "ingest", f"run_stream {FIRST.name}"
EACH, SHARED = (
    f"run_stream of {1 + len(OTHERS)} streams, {jvms}" for jvms in ("a JVM each", "one JVM")
)
NOTHING_NEW = "nothing new: all steps"
COLD_INGEST, COLD_RUN = (f"{step}, cold page cache" for step in (INGEST, RUN))
# What is left to the system to bring back from the disk.
PROGRAMS = (PROJECT / ".venv", PROJECT / ".jars", PROJECT / "include", PROJECT / "spark_jobs")


class Cost(NamedTuple):
    """Seconds of one process and all that it waited for."""

    wall: float
    cpu: float


class Price(NamedTuple):
    """What each step cost, and the seconds of each part of `run_stream`, round by round."""

    costs: dict[str, list[Cost]]
    parts: dict[str, list[dict[str, float]]]


def measure(folder: Path, rounds: int) -> Price:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="price-") as root, jvm_of_jobs():
        lake = made_lake(root)
        measure_round(lake, 0, Price({}, {}))
        price = Price({}, {})
        for number in range(1, rounds + 1):
            measure_round(lake, number, price)
    return price


def measure_round(lake: Lake, number: int, price: Price) -> None:
    """Three hours: the runs of the first one by one, of the second together, of the third cold."""
    add_hour(lake, 3 * number, price)
    run = add_run(lake, RUN, price)
    add(price, EACH, total([run, *(cost_of(drain(lake, stream)) for stream in OTHERS)]))
    add_hour(lake, 3 * number + 1, price)
    add(price, SHARED, cost_of(drain(lake, FIRST, *OTHERS)))
    again = ["-m", "include.cli", "stream", FIRST.name, "--lake", lake.root]
    add(price, NOTHING_NEW, cost_of([sys.executable, *again]))
    evict(lake)
    add_hour(lake, 3 * number + 2, price, COLD_INGEST)
    evict(lake)
    add_run(lake, COLD_RUN, price)


def add_hour(lake: Lake, number: int, price: Price, step: str = INGEST) -> None:
    land(lake, number)
    add(price, step, cost_of(ingest(lake)))


def add_run(lake: Lake, step: str, price: Price) -> Cost:
    began = datetime.now(UTC)
    cost = cost_of(drain(lake, FIRST))
    parts = parts_of(lake, FIRST, began, datetime.now(UTC))
    price.parts.setdefault(step, []).append(parts)
    return add(price, step, cost)


def add(price: Price, step: str, cost: Cost) -> Cost:
    price.costs.setdefault(step, []).append(cost)
    sys.stdout.write(f"{step}: {cost.wall:.2f} s, {cost.cpu:.2f} of CPU\n")
    sys.stdout.flush()
    return cost


def evict(lake: Lake) -> None:
    """Have the system forget what it holds of these files, as a machine that did other work does.

    It keeps those that another process has mapped.
    """
    os.sync()
    java = Path(shutil.which("java") or "java").resolve().parents[1]
    for folder in (*PROGRAMS, java, Path(lake.root)):
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def land(lake: Lake, number: int) -> None:
    """An hour of events, in one file."""
    landing = Path(lake.landing(SOURCE.name))
    landing.mkdir(parents=True, exist_ok=True)
    at = START + timedelta(hours=number)
    events = (
        {
            "user_id": f"user-{n % USERS}",
            "event_time": (at + timedelta(hours=1) * n / EVENTS).isoformat(),
            "event_type": "click",
            "value": 1.0,
        }
        for n in range(EVENTS)
    )
    (landing / f"{number:04}.json").write_text("".join(f"{json.dumps(e)}\n" for e in events))


def ingest(lake: Lake) -> list[str]:
    here = "include.landing.ingest"
    return [sys.executable, "-m", here, "--source", SOURCE.name, "--lake", lake.root]


def drain(lake: Lake, stream: Stream, *others: Stream) -> list[str]:
    also = ["--also", *(other.name for other in others)] if others else []
    arguments = ["--stream", stream.name, "--lake", lake.root, *also]
    return submit_command("run_stream", arguments, stream)


def total(costs: Sequence[Cost]) -> Cost:
    return Cost(*map(sum, zip(*costs, strict=True)))


def cost_of(command: list[str]) -> Cost:
    """Run a command to its end. RuntimeError, with what it said, when it fails."""
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=PROJECT, env=os.environ | job_environment(), stdout=said, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command[:4])} failed:\n{said.read()[-3000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def table(price: Price) -> str:
    """Markdown: medians, and from where to where they were; of each step, and of each part."""
    steps = {step: tuple(zip(*costs, strict=True)) for step, costs in price.costs.items()}
    lines = ["| step | wall s | spread | CPU s | spread |", "|---|---|---|---|---|"]
    lines += [_line(step, seconds) for step, seconds in steps.items()]
    runs = tuple(price.parts.values())
    lines += ["", f"| part of {RUN} | s | spread | cold: s | spread |", "|---|---|---|---|---|"]
    lines += [_line(part, [[parts[part] for parts in run] for run in runs]) for part in PARTS]
    return "\n".join(lines)


def _line(name: str, columns: Sequence[Sequence[float]]) -> str:
    cells = [name]
    for seconds in columns:
        spread = f"{min(seconds):.2f} - {max(seconds):.2f}"
        cells += [f"{statistics.median(seconds):.2f}", spread]
    return f"| {' | '.join(cells)} |"
