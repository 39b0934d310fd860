"""A table, its dead letters, its checkpoint and its bronze, each of any instant of two lives: equal, or loud
and mended by one rebuild."""

import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from include.fold.admission import micros_of
from include.ingest.ingest_log import Ingestion
from include.lake.delta_log import dataset_of
from include.lake.errors import StatefulError
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from tests.simulator import writes
from tests.simulator.auditor import Auditor
from tests.simulator.oracle import FAILS, Commit
from tests.simulator.steps import land, run
from tests.simulator.world import World, open_world

PARTS = {
    "table": ("tables/sim_{0}",),
    "dead_letters": ("dead_letters/sim_{0}",),
    "checkpoint": ("checkpoints/sim_{0}",),
    "bronze": ("bronze/sent", "quarantine/sent", "ingest_log/sent"),
}
TRIED, TRIED_IN_FULL = 6, 2_000  # mixtures of each kind, drawn from all
HOUR = timedelta(hours=1)


class Instants(writes.Writes):
    """Each part of a lake as it was before each write; savepoints and `ops` are of the newest time."""

    def __init__(self, world: World, kind: str) -> None:
        super().__init__(None)
        self.world, self.kind = world, kind
        self.root = Path(world.lake.root)
        self.folder = self.root.with_name("instants")
        self.known: dict[str, list[Any]] = {part: [] for part in PARTS}
        self.commits: list[Commit] = []  # all that was ever ingested, in either life

    def before(self, name: str) -> None:
        self.look()

    def look(self) -> None:
        for part in PARTS:
            found = [
                (str(file), file.stat().st_size, file.stat().st_mtime_ns)
                for folder in self.folders(part)
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            ]
            if found not in self.known[part]:
                self._copy(part, self.folder / f"{part}{len(self.known[part])}")
                self.known[part].append(found)

    def folders(self, part: str) -> list[Path]:
        return [self.root / name.format(self.kind) for name in PARTS[part]]

    def _copy(self, part: str, target: Path) -> None:
        for number, folder in enumerate(self.folders(part)):
            if folder.exists():
                shutil.copytree(folder, target / str(number))

    def put_back(self, part: str, instant: int) -> None:
        for number, folder in enumerate(self.folders(part)):
            shutil.rmtree(folder, ignore_errors=True)
            copy = self.folder / f"{part}{instant}" / str(number)
            if copy.exists():
                shutil.copytree(copy, folder)

    def all_put_back(self, name: str) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.folder / name, self.root)

    def live(self, keys: str = "ab", value: int = 1) -> None:
        land(self.world, [(key, 0, value) for key in keys])
        self.commits += self.world.commits[-1:]
        run(self.world, self.kind)

    def rebuild(self) -> None:
        rebuild(self.world.engine, self.world.lake, self.stream, RebuildOptions())

    @property
    def stream(self) -> Any:
        return self.world.streams[self.kind]


def lived(lake: Instants) -> None:
    """Runs, a rebuild, the whole lake put back and gone on with otherwise, a rebuild under the number of
    the first one, an interval computed again, and rows that no run has read."""
    lake.live()
    lake.live("a", FAILS)
    lake.look()
    shutil.copytree(lake.root, lake.folder / "before")
    for keys in ("b", "ab"):
        lake.live(keys)
        lake.rebuild()
        lake.live("a", FAILS)
        lake.look()
        if keys == "b":
            lake.all_put_back("before")
    if lake.kind == "counts":  # a table that shows one state has no intervals
        start = lake.world.now().replace(minute=0, second=0, microsecond=0) - 2 * HOUR
        restate(lake.world.engine, lake.world.lake, lake.stream, start, start + HOUR)
    land(lake.world, [("a", 0, 1)])
    lake.commits += lake.world.commits[-1:]
    lake.look()


@pytest.fixture(params=["counts", "counts_per_key"])
def life(request: pytest.FixtureRequest) -> Iterator[Instants]:
    with open_world() as world:
        world.configure(request.param, on_error="dead_letter")
        world.deploy(request.param, "e")
        lake = Instants(world, request.param)
        with writes.killing():
            writes._current = lake
            lived(lake)
        shutil.copytree(lake.root, lake.folder / "newest")
        yield lake


def mixed(lake: Instants, mixture: tuple[int, ...]) -> str:
    """Return `equal` or `loud`; raises AssertionError or WrongError when a mixture is silently wrong."""
    lake.all_put_back("newest")
    for part, instant in zip(PARTS, mixture, strict=True):
        lake.put_back(part, instant)
    lake.world.commits[:] = of_bronze(lake)
    verdict = "equal"
    try:
        lake.live()
    except StatefulError:
        verdict = "loud"
        Auditor(lake.world, lake.kind).check()
        lake.rebuild()
        lake.live()
    found = Auditor(lake.world, lake.kind).check()
    assert found is not None, mixture
    assert (found.wrong, found.live_is_right) == ([], True), mixture
    return verdict


def noted(lake: Instants, mixture: tuple[int, ...]) -> str:
    try:
        return mixed(lake, mixture)
    except Exception as error:
        error.add_note(f"mixture {dict(zip(PARTS, mixture, strict=True))}")
        raise


def of_bronze(lake: Instants) -> list[Commit]:
    """The commits that bronze has once it has replayed its ingest log."""
    Ingestion(lake.world.lake, lake.world.source).finish()
    rows = dataset_of(lake.world.lake.bronze("sent")).to_table(["ingested_at"])
    instants = {micros_of(at) for at in pc.unique(rows["ingested_at"]).to_pylist()}
    return [commit for commit in lake.commits if commit.now_us in instants]


def drawn(lake: Instants, count: int) -> Iterator[tuple[int, ...]]:
    every = list(product(*(range(len(instants)) for instants in lake.known.values())))
    yield every[-1]
    yield from random.Random(7).sample(every, min(count, len(every)))


@pytest.mark.parametrize("tried", [TRIED, pytest.param(TRIED_IN_FULL, marks=pytest.mark.full)])
def test_parts_of_different_times_fit_or_are_refused(life: Instants, tried: int):
    verdicts = [noted(life, mixture) for mixture in drawn(life, tried)]
    assert (verdicts[0], "loud" in verdicts) == ("equal", True)
