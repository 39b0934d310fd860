"""Streams of streams: wherever a status says that a table is right, it is what loops over all root rows come to.

`python -m tests.simulator.cascade --seeds 100` is the same by more seeds.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from include import run_local
from include.amend.erase_rows import erased_key
from include.amend.plans import plan_erasure, plan_set_watermark
from include.fold.admission import instant_of
from include.ingest import stream_table
from include.ingest.amendments import amendments_of
from include.ingest.ingest import prepare
from include.ingest.ingest_log import read_done
from include.ingest.source_connector import lag_of_run
from include.ingest.stream_table import Parent, StreamTableConnector, position_in
from include.lake import lease
from include.registry import source_named, stream_named
from include.stream import stream_status
from spark_jobs.erase_key import erase
from spark_jobs.set_watermark import set_watermark
from tests.refused import refused
from tests.simulator.cascade import (
    GAP_US,
    NAMES,
    ROOT,
    SECOND_US,
    SOURCE_OF,
    Cascade,
    Click,
    WrongError,
    open_cascade,
    simulate,
)
from tests.simulator.world import Begun
from tests.simulator.writes import killed_at, killing

pytestmark = pytest.mark.slow


def test_wherever_a_status_says_right_a_table_is_what_loops_over_all_root_rows_come_to():
    simulate(1, 20, Cascade)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Rows of a minute, all taken, all right."""
    with open_cascade() as made:
        for number in range(6):
            made.now_us += 10 * SECOND_US
            rows = [
                Click(user, made.now_us - (of + ago) * SECOND_US, number)
                for of, user in enumerate("uvw")
                for ago in (0, 2)  # of one session
            ]
            made.land(*rows)
            if number in (1, 3, 5):
                made.cascade()
        made.silence(20 * SECOND_US)
        made.cascade()
        made.check()
        assert not any(made.status(name).table_status.wrong for name in NAMES)
        return made.copied(tmp_path_factory.mktemp("begun"))


@pytest.fixture
def world(begun: Begun) -> Iterator[Cascade]:
    with open_cascade() as made:
        made.go_on(begun)
        yield made


def late(world: Cascade, ago: int = 45, user: str = "u") -> int:
    """Land a late row of the root, and give its instant."""
    at_us = world.now_us - ago * SECOND_US
    world.land(Click(user, at_us, 2))
    world.run("a")
    return at_us


def wrong_from(world: Cascade, name: str) -> int | None:
    wrong = world.status(name).table_status.wrong
    return wrong[0].from_us if wrong else None


def rows_of(world: Cascade, name: str) -> int:
    return len(world.weights(name))


# The sequences that were hardest


def test_a_late_row_at_the_root_makes_all_behind_it_wrong_from_its_instant_on(world: Cascade):
    at_us = late(world)
    assert world.reasons("a") == {"late rows"}
    for name in "bc":
        assert (wrong_from(world, name), world.reasons(name)) == (at_us, {"upstream"})
        assert "upstream_not_right" in [f.finding for f in world.status(name).findings]
    assert world.cascade() == ["a", "b", "c"]
    assert -1 in world.weights("b")
    assert [wrong_from(world, name) for name in NAMES] == [None] * 3
    world.check()


def test_a_rebuild_of_the_parent_is_killed_the_child_follows_and_the_parent_finishes(
    world: Cascade,
):
    late(world)
    world.rebuild("a", kill=4)
    world.follow("b")
    world.run("b")
    world.check()
    world.rebuild("a")
    world.check()
    world.settle()


def test_a_rewind_that_deletes_nothing_is_followed_once_live_has_gone_on(world: Cascade):
    before = world.table("a")
    world.rewind("a", SECOND_US)
    assert world.table("a") == before
    world.check()
    assert "complete until" in str(lag_of_run(world.lake, source_named("from_a")).held)
    assert world.reasons("b") == {"upstream"}
    late(world)
    world.silence(20 * SECOND_US)
    world.run("a")
    world.check()
    world.follow("b")
    world.check()
    world.settle()


def test_restatements_of_several_spans_are_killed_after_one_and_the_child_is_rebuilt_between(
    world: Cascade,
):
    first_us, last_us = late(world, 55), late(world, 42, "v")
    world.restate("a", first_us - SECOND_US, first_us + GAP_US)
    world.restate("a", last_us - SECOND_US, last_us + GAP_US, kill=1)
    world.follow("b")
    world.rebuild("b")
    world.check()
    world.restate("a", last_us - SECOND_US, world.now_us - 10 * SECOND_US)
    world.check()
    world.follow("b")
    world.check()
    world.settle()


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_restatement_to_equal_rows_ends_there(world: Cascade, name: str):
    child = NAMES[NAMES.index(name) + 1]
    rows = rows_of(world, child)
    world.restate(name, world.now_us - 60 * SECOND_US, world.now_us - 20 * SECOND_US)
    assert world.reasons(child) == {"upstream"}
    world.follow(child)
    assert rows_of(world, child) == rows
    assert not world.reasons(child)
    assert world.cascade() == []


def test_a_table_restated_twice_and_back_again_takes_nothing_back(world: Cascade):
    rows = rows_of(world, "b")
    span = world.now_us - 60 * SECOND_US, world.now_us - 20 * SECOND_US
    before = world.table("a")
    for factor in (5, 3):
        world.deploy(factor)
        world.restate("a", *span)
        assert (world.table("a") == before) == (factor == 3)
    world.follow("b")
    assert rows_of(world, "b") == rows
    world.check()


def test_a_row_at_the_very_instant_until_which_the_parent_is_complete(world: Cascade):
    complete_us = world.until_us("a")
    assert complete_us is not None
    world.now_us += 10 * SECOND_US
    for user, around_us in zip("uvw", (-1, 0, 1), strict=True):
        at_us = complete_us + around_us
        world.land(Click(user, at_us - GAP_US, 1), Click(user, at_us, 1))
    world.run("a")
    world.follow("b")
    world.check()
    world.settle()


def test_both_before_a_stream_are_restated_and_one_is_followed(world: Cascade):
    at_us = late(world)
    world.rebuild("a")
    world.follow("b")
    world.restate("b", at_us - SECOND_US, at_us + 20 * SECOND_US)
    world.follow("c")
    world.check()
    upstream = world.status("c").upstream
    assert upstream is not None
    assert upstream.from_us == wrong_from(world, "b")  # behind what was restated
    world.settle()


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_record_of_a_parent_is_lost(world: Cascade, name: str):
    child = NAMES[NAMES.index(name) + 1]
    rows = rows_of(world, child)
    world.lose(name)
    assert world.status(child).upstream is not None
    world.follow(child)
    assert rows_of(world, child) == rows  # all was compared
    world.settle()


def _put_back(world: Cascade, tmp_path: Path) -> None:
    """A parent's table and checkpoint, as older copies, have other entries of the same numbers."""
    parts = [f"{kind}/a" for kind in ("tables", "checkpoints", "savepoints")]
    for part in parts:
        shutil.copytree(Path(world.lake.root, part), tmp_path / part)
    world.deploy(5)
    world.restate("a", world.now_us - 60 * SECOND_US, world.now_us - 30 * SECOND_US)
    world.follow("b")
    for part in parts:
        shutil.rmtree(Path(world.lake.root, part))
        shutil.copytree(tmp_path / part, Path(world.lake.root, part))
    world.deploy(3)
    world.restate("a", world.now_us - 29 * SECOND_US, world.now_us - 20 * SECOND_US)
    world.follow("b")
    world.check()
    world.rebuild("b")
    world.check()
    world.settle()


def test_an_older_copy_of_a_childs_bronze_under_a_newer_parent(world: Cascade, tmp_path: Path):
    parts = [f"{kind}/from_a" for kind in ("bronze", "quarantine", "ingest_log")]
    for part in parts:
        shutil.copytree(Path(world.lake.root, part), tmp_path / part)
    late(world)
    world.cascade()
    for part in parts:
        shutil.rmtree(Path(world.lake.root, part))
        shutil.copytree(tmp_path / part, Path(world.lake.root, part))
    world.check()
    world.follow("b")
    world.check()
    world.rebuild("b")
    world.settle()


def test_a_silent_parent_fires_the_timeouts_of_its_child_by_a_heartbeat(world: Cascade):
    rows, until_us = rows_of(world, "b"), world.until_us("b")
    world.silence(30 * SECOND_US)
    for name in NAMES:
        world.follow(name) if name != "a" else None
        world.run(name)
    assert rows_of(world, "b") == rows
    assert world.until_us("b") == world.until_us("a") != until_us


@pytest.mark.parametrize(("name", "kill"), [("b", 4), ("c", 2)])
def test_a_step_that_is_killed_anywhere_is_taken_once(world: Cascade, name: str, kill: int):
    late(world)
    world.rebuild("a")
    if name == "c":
        world.follow("b")
        world.rebuild("b")
    world.follow(name, kill)
    world.check()
    world.follow(name)
    rows = rows_of(world, name)
    world.follow(name)
    assert rows_of(world, name) == rows
    assert sum(world.weights(name)) == sum(world.table(NAMES[NAMES.index(name) - 1]).values())
    world.settle()


def test_a_rewound_child_folds_none_of_what_was_taken_back(world: Cascade):
    at_us = late(world)
    world.cascade()
    assert -1 in world.weights("b")
    complete_us = world.until_us("b")
    assert complete_us is not None
    world.rewind("b", complete_us - at_us)
    world.run("b")
    world.check()
    opened = world.status("b").opened
    assert opened.record.totals["rows_pending"] == 0
    world.settle()


def test_a_large_step_is_cut_by_dates_and_comes_to_the_same():
    with open_cascade() as made:
        for _ in range(4):
            made.now_us += 86_400 * SECOND_US
            made.land(*[Click(user, made.now_us, 1) for user in "uv"])
        made.run("a")
        source = replace(source_named("from_a"), commit_bytes=1)
        small, ends = StreamTableConnector(made.lake, source, "a"), list[int]()
        while (step := small.next_step(read_done(made.lake, "from_a"))) is not None:
            ends.append(step.new[1])
            small.take_next(prepare(made.lake, source))
        assert len(ends) >= 3
        assert ends == sorted(set(ends))
        made.follow("b")
        made.check()
        made.settle()


# `--downstream`


class Jobs:
    """Jobs of the command line by the local engine; the one of this number dies."""

    def __init__(self, world: Cascade, patch: pytest.MonkeyPatch, dies: int | None = None) -> None:
        self.world, self.dies = world, dies
        self.done: list[str] = []
        patch.setattr(run_local, "ingest", lambda lake, source: self._follow(source.name))
        patch.setattr(run_local, "run_job", lambda job, args, stream: self._rebuild(stream.name))

    def mend(self, name: str) -> int:
        return run_local.mend_downstream(self.world.lake, stream_named(name))

    def _follow(self, source: str) -> int:
        name = next(name for name, read in SOURCE_OF.items() if read == source)
        return self._do(f"ingest {name}", lambda kill: self.world.follow(name, kill))

    def _rebuild(self, name: str) -> int:
        return self._do(f"rebuild {name}", lambda kill: self.world.rebuild(name, kill))

    def _do(self, what: str, job: Callable[[int | None], None]) -> int:
        self.done.append(what)
        is_killed = len(self.done) == self.dies
        job(2 if is_killed else None)
        return int(is_killed)


@pytest.mark.parametrize("dies", [None, 4])
def test_all_behind_a_restated_table_follow_in_order_and_whoever_dies_is_repeated(
    world: Cascade, monkeypatch: pytest.MonkeyPatch, dies: int | None
):
    at_us = late(world)
    world.restate("a", at_us - SECOND_US, world.now_us - 15 * SECOND_US)
    assert "b, c" in run_local.downstream_plan(world.lake, stream_named("a"))
    jobs = Jobs(world, monkeypatch, dies)
    code = jobs.mend("a")
    assert code == int(dies is not None)
    world.check()
    if dies is None:
        assert jobs.done == ["ingest b", "rebuild b", "ingest c", "rebuild c"]
    assert jobs.mend("a") == 0
    world.check()
    for name in "bc":  # a itself has late rows behind the interval
        assert world.reasons(name) <= {"upstream"}
    done = len(jobs.done)
    assert jobs.mend("a") == 0
    assert jobs.done[done:] == ["ingest b", "ingest c"]
    world.settle()


def test_what_comes_to_the_same_rows_ends_the_cascade(
    world: Cascade, monkeypatch: pytest.MonkeyPatch
):
    world.restate("a", world.now_us - 60 * SECOND_US, world.now_us - 20 * SECOND_US)
    jobs = Jobs(world, monkeypatch)
    assert jobs.mend("a") == 0
    assert jobs.done == ["ingest b", "ingest c"]


# Amendments at the root

ERASED = "qzerinzq"


def erase_erin(world: Cascade) -> None:
    erase(world.engine, world.lake, erased_key("clicks", f"user={ERASED}"))


def test_an_erasure_at_the_root_reaches_all_behind_it(world: Cascade):
    kept = [*world.clicks]
    for ago in (40, 30, 3):
        world.land(Click(ERASED, world.now_us - ago * SECOND_US, 1))
    world.silence(20 * SECOND_US)
    assert world.cascade() == ["a", "b", "c"]
    assert world.files_with(ERASED)
    assert killed_at(40, lambda: erase_erin(world))
    world.follow("b")
    erase_erin(world)
    assert world.files_with(ERASED) == set()
    world.clicks[:] = kept
    world.check()
    for name in NAMES:
        world.run(name)
        assert not world.reasons(name)
    world.settle()


@pytest.mark.parametrize(("first", "at"), [("rebuild", 3), ("erase", 36)])
def test_an_erasure_at_the_root_and_a_rebuild_behind_it_at_once(
    world: Cascade, monkeypatch: pytest.MonkeyPatch, first: str, at: int
):
    """The other one begins before a write of the first, which waits until that has to wait, or has ended."""
    kept, went_on, locked = [*world.clicks], Event(), lease._locked
    world.land(Click(ERASED, world.now_us - 40 * SECOND_US, 1))
    world.silence(20 * SECOND_US)
    world.rebuild("a")
    world.follow("b")
    monkeypatch.setattr(lease, "_locked", lambda file: locked(file) or went_on.set())
    jobs = [lambda: world.rebuild("b"), lambda: erase_erin(world)]
    mine, other = jobs if first == "rebuild" else jobs[::-1]
    others: list[Future[None]] = []

    def begin() -> None:
        others.append(pool.submit(other))
        others[0].add_done_callback(lambda _: went_on.set())
        went_on.wait()

    with ThreadPoolExecutor() as pool, killing(at, begin):
        mine()
    (done,) = others
    done.result()
    assert world.files_with(ERASED) == set()
    world.clicks[:] = kept
    world.check()
    world.settle()


def test_a_source_of_a_table_is_amended_at_its_root(world: Cascade):
    for amend in (
        lambda: plan_erasure(world.lake, erased_key("from_a", "user=u")),
        lambda: plan_set_watermark(world.lake, source_named("from_b"), world.now()),
    ):
        with refused("wrong_argument") as error:
            amend()
        assert "clicks" in error.value.message


def test_a_watermark_set_back_at_the_root_is_so_behind_it(world: Cascade):
    right_us = world.now_us
    world.now_us += 10_000 * SECOND_US  # a machine's clock was ahead
    world.silence(0)
    world.now_us = right_us + SECOND_US
    world.cascade()
    back = instant_of(right_us - 5 * SECOND_US)

    def set_back(to: Any = back) -> None:
        set_watermark(world.engine, world.lake, ROOT, to)

    assert killed_at(24, set_back)
    set_back(None if amendments_of(world.lake, "clicks").open else back)
    world.check()
    assert {world.until_us(name) for name in NAMES} == {world.until_us("a")}
    world.settle()


# Bugs that the sequences are to find


def _adds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stream_table.difference

    def adds(*args: Any) -> Any:
        rows = made(*args)
        return rows.filter([weight > 0 for weight in rows["weight"].to_pylist()])

    monkeypatch.setattr(stream_table, "difference", adds)


def _no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(rows: Any, weight: str = "weight", names: Any = None) -> Any:
        return rows.drop_columns(weight)

    for module in ("tests.simulator.local_engine", "include.lake.multiset"):
        monkeypatch.setattr(f"{module}.net", whole)


def _no_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parent, "written_since", lambda self, known: [])


def _spans_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what restatements and rebuilds have computed, and not what live has emitted again behind."""
    made = Parent.written_since

    def computed(self: Parent, known: Any) -> Any:
        entries = [
            entry | {"kind": "restate"}
            for entry in self.record["entries"]
            if entry["kind"] != "live"
        ]
        return made(replace(self, record={**self.record, "entries": entries}), known)

    monkeypatch.setattr(Parent, "written_since", computed)


def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that was rewound is taken to be as complete as it was."""
    made = StreamTableConnector.next_step

    def next_step(self: StreamTableConnector, done: Any) -> Any:
        known, parent = position_in(done), stream_table.parent_of(self.lake, self.parent)
        if known is not None and parent is not None and parent.complete_us < known.until_us:
            changed = parent.written_since(known)
            return stream_table.Step(parent, changed, (known.until_us, known.until_us))
        return made(self, done)

    monkeypatch.setattr(StreamTableConnector, "next_step", next_step)
    monkeypatch.setattr(stream_status, "_upstream", lambda opened, of_parent: None)


def _no_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_status, "_upstream", lambda opened, of_parent: None)


def _numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was begun anew is taken for the one before."""
    monkeypatch.setattr(Parent, "_origin", lambda self, version, lineage: f"any any {version} any")


def _amended(world: Cascade, tmp_path: Path) -> None:
    late(world)
    world.check()
    world.rebuild("a")
    world.follow("b")
    world.check()
    world.settle()


def _rewound(world: Cascade, tmp_path: Path) -> None:
    """What is emitted again behind the rewind has a row that was late before."""
    late(world, ago=21)
    world.rewind("a", 30 * SECOND_US)
    world.check()
    world.run("a")
    world.follow("b")
    world.check()
    world.settle()


Plant = Callable[[pytest.MonkeyPatch], None]
PLANTS: dict[str, tuple[Plant, Callable[[Cascade, Path], None]]] = {
    "adds only": (_adds_only, _amended),
    "no net": (_no_net, _amended),
    "no ranges": (_no_ranges, _amended),
    "no wait": (_no_wait, _rewound),
    "no upstream": (_no_upstream, _amended),
    "spans of restatements and rebuilds alone": (_spans_alone, _rewound),
    "numbers alone": (_numbers_alone, _put_back),
}


@pytest.mark.parametrize("sequence", [_rewound, _put_back])
def test_what_finds_planted_bugs_finds_none_without_them(
    world: Cascade, tmp_path: Path, sequence: Callable[[Cascade, Path], None]
):
    sequence(world, tmp_path)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(
    world: Cascade, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plant: str
):
    do, sequence = PLANTS[plant]
    do(monkeypatch)
    with pytest.raises(WrongError):
        sequence(world, tmp_path)
