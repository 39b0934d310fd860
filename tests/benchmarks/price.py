"""What a scheduled run costs: its two jobs for a thousand new events, and all its steps for none.

    make bench ARGS="--only price --rounds 5"

Each step is a process of its own, with the command of the Dag's task, over one lake that grows by
two hours a round: for the first each stream of the source has a JVM, for the second they share one.
A first round warms the disk's cache and is left out. CPU is that of the process and of all it
waited for, its JVM and that one's Python workers.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from include.lake.paths import Lake, made_lake
from include.registry import source_named, streams_of
from include.settings import PROJECT, Stream
from include.spark.submit import job_environment, submit_command

EVENTS, USERS = 1_000, 200
START = datetime(2026, 3, 1, tzinfo=UTC)
SOURCE = source_named("user_events")
FIRST, *OTHERS = streams_of(SOURCE.name)
INGEST, RUN = "ingest", f"run_stream {FIRST.name}"
EACH, SHARED = (
    f"run_stream of {1 + len(OTHERS)} streams, {jvms}" for jvms in ("a JVM each", "one JVM")
)
NOTHING_NEW = "nothing new: all steps"


class Cost(NamedTuple):
    """Seconds of one process and all that it waited for."""

    wall: float
    cpu: float


def measure(folder: Path, rounds: int) -> dict[str, list[Cost]]:
    """What each step cost, round by round."""
    folder.mkdir(parents=True, exist_ok=True)
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix="price-") as root:
        lake = made_lake(root)
        for number in range(rounds + 1):
            for step, cost in measured_round(lake, number):
                if number:
                    costs.setdefault(step, []).append(cost)
    return costs


def measured_round(lake: Lake, number: int) -> Iterator[tuple[str, Cost]]:
    """Two hours: the runs of the first one by one, of the second together; and then there is nothing."""
    land(lake, 2 * number)
    yield INGEST, cost_of(ingest(lake))
    run = cost_of(drain(lake, FIRST))
    yield RUN, run
    yield EACH, total([run, *(cost_of(drain(lake, stream)) for stream in OTHERS)])
    land(lake, 2 * number + 1)
    yield INGEST, cost_of(ingest(lake))
    yield SHARED, cost_of(drain(lake, FIRST, *OTHERS))
    again = ["-m", "include.cli", "stream", FIRST.name, "--lake", lake.root]
    yield NOTHING_NEW, cost_of([sys.executable, *again])


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
    here = "include.landing.ingest_here"
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


def table(costs: dict[str, list[Cost]]) -> str:
    """Markdown: medians, and from where to where they were."""
    lines = ["| step | wall s | spread | CPU s | spread |", "|---|---|---|---|---|"]
    for step, measured in costs.items():
        cells = [step]
        for seconds in zip(*measured, strict=True):
            cells += [
                f"{statistics.median(seconds):.2f}",
                f"{min(seconds):.2f} - {max(seconds):.2f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def price_of_a_run(costs: dict[str, list[Cost]]) -> float:
    """Wall seconds of a run with a thousand events: of its two jobs."""
    return sum(statistics.median(c.wall for c in costs[step]) for step in (INGEST, RUN))
