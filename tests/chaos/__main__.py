"""Sequences of operations on real Spark, with real kills: `make chaos SEEDS=25 STEPS=20`.

    python -m tests.chaos --seeds 25 --first 1 --steps 20

A seed is one of the simulator's sequences, whose jobs run on Spark and are killed by SIGKILL: before
a write of Python's, or when so many files have come below the lake; the driver with its JVM, the JVM
alone, or Spark's Python workers. After each action, and by each driver that takes over, the tables
are compared with the oracle. A seed that goes wrong keeps its folder, and is the same again but for where a
file-counting kill comes exactly.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from include.settings import PROJECT
from tests.chaos.driver import JVM_KILLED, KILLS, PLAN, say
from tests.chaos.plan import Plan, plan_of
from tests.simulator.world import fresh_folder

SAID = "said"  # by all drivers of a seed
# Of JVMs that do not live for long.
SHORT_RUN = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@dataclass(frozen=True)
class Result:
    """The result of a seed."""

    seed: int
    steps: int
    kills: dict[str, int]  # by what was killed
    wrong: str  # empty: nothing


def main() -> int:
    args = parse_args()
    found = []
    for number in range(args.first, args.first + args.seeds):
        found.append(run_seed(plan_of(number, args.steps)))
        say(said_of(found[-1]))
    say(summed(found))
    return any(result.wrong for result in found)


def parse_args() -> Namespace:
    parser = ArgumentParser(prog="make chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--steps", type=int, default=20, help="actions of each")
    return parser.parse_args()


def run_seed(plan: Plan) -> Result:
    """Drivers, one after the other, until the plan has been done or something is wrong."""
    folder = fresh_folder()
    (folder / PLAN).write_bytes(pickle.dumps(plan))
    (folder / KILLS).touch()
    wrong = drive([sys.executable, "-m", "tests.chaos.driver", str(folder)], folder)
    kills = Counter(line.partition(",")[0] for line in _lines(folder / KILLS))
    if not wrong:
        shutil.rmtree(folder)
    return Result(plan.number, len(plan.actions) - 2, dict(kills), wrong)


def drive(command: Sequence[str], folder: Path) -> str:
    """Run drivers to the end of the plan; return what is wrong, or an empty text."""
    with (folder / SAID).open("ab") as said:
        while True:
            kills = len(_lines(folder / KILLS))
            driver = subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                cwd=PROJECT,
                env=os.environ | SHORT_RUN,
                start_new_session=True,
            )
            code = driver.wait()
            if code == 0:
                return ""
            was_noted = len(_lines(folder / KILLS)) > kills
            if code not in (-signal.SIGKILL, JVM_KILLED) or not was_noted:
                return f"{folder}: ended with {code}\n{_last(folder / SAID)}"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _last(path: Path) -> str:
    return path.read_text(errors="replace")[-6_000:]


def said_of(result: Result) -> str:
    kills = ", ".join(f"{count} {target}" for target, count in sorted(result.kills.items()))
    wrong = f", WRONG: {result.wrong}" if result.wrong else ""
    return f"seed {result.seed}: {result.steps} steps, killed: {kills or 'none'}{wrong}"


def summed(results: Sequence[Result]) -> str:
    kills = sum((Counter(result.kills) for result in results), Counter[str]())
    wrong = sum(bool(result.wrong) for result in results)
    steps = sum(result.steps for result in results)
    return f"{len(results)} seeds, {steps:,} steps, {kills.total():,} kills {dict(kills)}, {wrong} wrong"


if __name__ == "__main__":
    sys.exit(main())
