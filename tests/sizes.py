"""The size of the house: lines of each room, and what one ingest, drain, check and rebuild enter.

    make sizes                 # the table: measured, budget, aim of release 1.0
    make sizes ARGS=--lower    # the same, and budgets are lowered to what was measured

`tests/sizes.json` has a budget and an aim for each figure; `test_architecture.py` holds them.
Raising one takes a commit of its own that names the feature and what was deleted for it.
"""

import json
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from inspect import unwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import deltalake.table
import pytest
import typer

from include.cli.__main__ import load
from include.ingest import ingest
from include.lake.ops import SCHEMAS, read_ops
from include.lake.paths import Lake
from include.maintain.check_checkpoint import check_checkpoint, record_check
from include.stream.rebuild_plan import RebuildOptions
from include.streams import sources
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.run_stream import drain
from tests.faults.lakes import STREAMS, Story, registered
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("include", "spark_jobs", "dags")
# A file belongs to the first room that has one of its folders.
ROOMS = {
    "fold": ("include/fold",),
    "lake": ("include/lake", "include/text_table.py"),
    "ingest": ("include/ingest",),
    "stream": ("include/stream",),
    "amend": ("include/amend",),
    "observe and maintain": (
        "include/maintain",
        "include/observe",
        "include/page",
        "include/catalogue.py",
    ),
    "spark": ("include/spark",),
    "airflow": ("include/airflow", "dags"),
    "command line and set-up": (
        "include/cli",
        "include/setup",
        "include/docker",
        "include/sample",
        "include/steps.py",
        "include/run_local.py",
        "include/job.py",
    ),
    "spark_jobs": ("spark_jobs",),
    "settings and streams": ("include",),
}
BUDGETS = ROOT / "tests/sizes.json"
STREAM = "user_counts"


@dataclass
class Walk:
    """What one operation enters: our files and functions, tables opened, `ops` read, commits made."""

    functions: dict[CodeType, None] = field(default_factory=dict)  # in the order of first entry
    tables_opened: int = 0
    ops_reads: int = 0
    commits: int = 0

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(code.co_filename for code in self.functions))

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.setprofile`."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(tuple(f"{ROOT}/{room}/" for room in PRODUCT)):
            self.functions[code] = None
        self.tables_opened += code is deltalake.table.DeltaTable.__init__.__code__
        self.ops_reads += code is unwrap(read_ops).__code__


def lines(*folders: str) -> int:
    """Lines of Python below these folders, and in these files."""
    return sum(len(file.read_text().splitlines()) for file in python_files(*folders))


def python_files(*folders: str) -> list[Path]:
    paths = [ROOT / folder for folder in folders]
    return [f for path in paths for f in ([path] if path.is_file() else sorted(path.rglob("*.py")))]


def sizes() -> dict[str, int]:
    """Each figure by its name."""
    product = python_files(*PRODUCT)
    lengths = [len(file.read_text().splitlines()) for file in product]
    return {
        "lines of the product": sum(lengths),
        "lines of tests": lines("tests"),
        "files of the product": len(product),
        "longest file of the product": max(lengths),
        **{f"lines of {room}": count for room, count in lines_of_rooms().items()},
        **walks(),
        "commands": len(list(_commands(typer.main.get_command(load())))),
        "ops tables": len(SCHEMAS),
    }


def lines_of_rooms() -> dict[str, int]:
    counted = dict.fromkeys(ROOMS, 0)
    for file in python_files(*PRODUCT):
        name = str(file.relative_to(ROOT))
        room = next(
            r
            for r, at in ROOMS.items()
            if name in at or name.startswith(tuple(f"{a}/" for a in at))
        )
        counted[room] += len(file.read_text().splitlines())
    return counted


def _commands(command: Any) -> Iterator[str]:
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from _commands(below)
        else:
            yield name


def walks() -> dict[str, int]:
    """What each operation enters, on a lake where two files were drained before."""
    with (
        tempfile.TemporaryDirectory() as folder,
        registered(),
        pytest.MonkeyPatch.context() as patch,
    ):
        # A file of the story has a broken line among few, and is of another day: nothing is told of it here.
        told_of_none = tuple(
            replace(each, max_quarantined=1, max_future=timedelta(days=9))
            for each in sources.SOURCES
        )
        patch.setattr(sources, "SOURCES", told_of_none)
        story = Story(Lake(folder), STREAMS[STREAM], 0)
        engine = LocalEngine(LiveModel())
        for _ in range(2):
            story = story.land()
            _ingest(story)
            drain(engine, story.lake, story.stream)
        story = story.land()
        operations: dict[str, Callable[[], object]] = {
            "ingest": lambda: _ingest(story),
            "drain": lambda: drain(engine, story.lake, story.stream),
            "check": lambda: record_check(story.lake, check_checkpoint(story.lake, story.stream)),
            "rebuild": lambda: rebuild(
                engine, story.lake, story.stream, RebuildOptions(full_refresh=True)
            ),
        }
        found = {name: walked(story.root, run) for name, run in operations.items()}
    return {
        f"{name}: {what}": count
        for name, walk in found.items()
        for what, count in {
            "files entered": len(walk.files),
            "functions entered": len(walk.functions),
            "tables opened": walk.tables_opened,
            "ops reads": walk.ops_reads,
            "commits": walk.commits,
        }.items()
    }


def _ingest(story: Story) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", "--source", story.stream.source, "--lake", story.lake.root])
        ingest.main()


def walked(lake: Path, run: Callable[[], object]) -> Walk:
    walk, before = Walk(), _commits(lake)
    with profiled(walk):
        run()
    walk.commits = len(_commits(lake) - before)
    return walk


@contextmanager
def profiled(walk: Walk) -> Iterator[None]:
    sys.setprofile(walk.note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _commits(lake: Path) -> set[Path]:
    return set(lake.rglob("_delta_log/*.json"))


def budgets() -> dict[str, tuple[int, int]]:
    """Of each figure the most that it may be now, and the aim of release 1.0."""
    return {name: (now, aim) for name, (now, aim) in json.loads(BUDGETS.read_text()).items()}


def table(measured: dict[str, int]) -> str:
    held = budgets()
    rows = [f"{'':36}{'measured':>9}{'budget':>9}{'1.0':>9}"]
    rows += [
        f"{name:36}{count:9,}{held[name][0]:9,}{held[name][1]:9,}"
        for name, count in measured.items()
    ]
    return "\n".join(rows)


def lower(measured: dict[str, int]) -> None:
    """Budgets come down to what was measured; none goes up."""
    held = {n: [max(aim, min(now, measured[n])), aim] for n, (now, aim) in budgets().items()}
    rows = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in held.items()]
    BUDGETS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def main() -> None:
    parser = ArgumentParser(prog="make sizes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lower", action="store_true", help="lower budgets to what was measured")
    args = parser.parse_args()
    measured = sizes()
    sys.stdout.write(f"{table(measured)}\n")
    if args.lower:
        lower(measured)


if __name__ == "__main__":
    main()
