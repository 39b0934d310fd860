"""An upgrade of Spark and Delta, rehearsed: `make rehearse-upgrade SPARK=4.2.1 DELTA=4.4.0`.

    python -m tests.upgrades --spark 4.2.1 --delta 4.4.0 [--tests tests/engines tests/care]

Both are laid beside the project, in `.bench/upgrades` (half a gigabyte; the network is needed once). Then
the lakes that older releases left are opened, run on, backfilled and reseeded by them, and a lake goes
up to them, down again and up once more. Nothing of the project's own is changed. Ends with 1 when
anything went wrong; the folder's `said-*` files have all that was said.
"""

import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from include.settings import PROJECT
from include.setup.jars import SetupError
from include.spark.submit import installed_versions
from include.spark.versions import UNTRIED
from include.text_table import text_table
from tests.upgrades.environment import pip, prepare
from tests.upgrades.way import WAY

LAKES = ("tests/e2e/test_lake_of_0_5.py", "tests/e2e/test_lake_of_0_6.py")
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=few")


class Step(NamedTuple):
    """One thing to try: words after `python -m`, in a project's folder."""

    says: str
    project: Path
    words: Sequence[str]


class Outcome(NamedTuple):
    step: Step
    is_right: bool
    said: str  # in a line
    seconds: float


def main() -> int:
    args = parse_args()
    try:
        folder = prepare(args.spark, args.delta)
    except SetupError as error:
        sys.exit(f"error: {error}")
    outcomes = []
    for outcome in rehearsed(steps_of(folder, args.tests), folder, args.spark):
        outcomes.append(outcome)
        say(f"{outcome.step.says}: {outcome.said}")
    say("\n".join(["", *table(outcomes, f"{args.spark} with {args.delta}"), *notes(folder)]))
    return int(not all(outcome.is_right for outcome in outcomes))


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = ArgumentParser(description="Rehearse an upgrade of Spark and Delta.")
    parser.add_argument("--spark", required=True, help="the release to go to, such as 4.2.1")
    parser.add_argument("--delta", required=True, help="of Delta, whose jar is on Maven Central")
    parser.add_argument("--tests", nargs="*", default=[], help="tests to run under both, too")
    return parser.parse_args(argv)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def steps_of(folder: Path, tests: Sequence[str]) -> Iterator[Step]:
    yield Step("lakes of older releases", folder, [*PYTEST, *LAKES])
    lake = folder / "lakes" / "lake"
    for number, part in enumerate(WAY):
        project = folder if part.is_new else PROJECT
        yield Step(part.says, project, ["tests.upgrades.way", str(lake), str(number)])
    if tests:
        yield Step("tests", folder, [*PYTEST, "-m", "not full and not e2e", *tests])


def rehearsed(steps: Iterator[Step], folder: Path, spark: str) -> Iterator[Outcome]:
    """What became of each; the way ends where a part of it went wrong."""
    shutil.rmtree(folder / "lakes", ignore_errors=True)
    (folder / "lakes").mkdir()
    is_lost = False
    for number, step in enumerate(steps):
        is_on_way = step.words[0] != PYTEST[0]
        if is_on_way and is_lost:
            yield Outcome(step, False, "not reached", 0)
            continue
        outcome = carry_out(step, folder / f"said-{number}.txt", spark)
        is_lost |= is_on_way and not outcome.is_right
        yield outcome


def carry_out(step: Step, log: Path, spark: str) -> Outcome:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [step.project / ".venv" / "bin" / "python", "-m", *step.words]
    begun = time.monotonic()
    with log.open("w") as output:
        code = subprocess.run(
            command,
            cwd=step.project,
            env=environment | {UNTRIED: spark},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    said = last_line(log.read_text(errors="replace"), code)
    return Outcome(step, code == 0, said, time.monotonic() - begun)


def last_line(text: str, code: int) -> str:
    """What is to be said of a step: pytest's count, what is wrong, or the error it ended with."""
    lines = [line.strip(" =") for line in text.splitlines() if line.strip(" =")]
    found = [line for line in lines if line.startswith("wrong: ")]
    if found:
        return "; ".join(found)
    if lines and (" passed" in lines[-1] or code):
        return lines[-1]
    return f"exit code {code}" if code else "as it must be"


def table(outcomes: Sequence[Outcome], new: str) -> list[str]:
    ours = installed_versions()
    old = f"{ours.spark} with {ours.delta}"
    rows = [
        [
            outcome.step.says,
            old if outcome.step.project == PROJECT else new,
            f"{outcome.seconds:.0f}",
            "right" if outcome.is_right else "WRONG",
            outcome.said,
        ]
        for outcome in outcomes
    ]
    return text_table(("what", "by Spark, Delta", "seconds", "", "said"), rows, left=(0, 1, 3, 4))


def notes(folder: Path) -> list[str]:
    """What pip says of the two beside all other packages: it would not install what does not fit."""
    said = pip(folder / ".venv", "check").splitlines()
    return [f"pip: {line}" for line in said if "spark" in line]


if __name__ == "__main__":
    sys.exit(main())
