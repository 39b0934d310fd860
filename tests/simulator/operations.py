"""One stream of a world, and everything that can be done to it: data, jobs, changes, harm."""

import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.fold.admission import instant_of, micros_of
from include.ingest.amendments import amendments_of
from include.lake.errors import LakeError, SettingsError
from include.lake.lease import LeaseTakenError, hold_lease
from include.lake.table import Table
from include.stream.open_stream import has_waiting_rows
from include.stream.rebuild_plan import RebuildOptions
from include.stream.restate_plan import why_not_rebuild
from spark_jobs.compact_state import compact
from spark_jobs.rebuild_stream import rebuild
from spark_jobs.restate_interval import restate
from spark_jobs.run_stream import drain
from spark_jobs.set_watermark import set_watermark
from spark_jobs.write_savepoint import savepoint
from tests.simulator.actions import OF_STREAM, Action
from tests.simulator.auditor import Auditor, WrongError
from tests.simulator.checkpoint_log import CheckpointError
from tests.simulator.damage import (
    Copies,
    append_again,
    clean_log,
    empty_newest_commit,
    lose,
    parts_of,
)
from tests.simulator.oracle import Landed
from tests.simulator.stream_files import KINDS
from tests.simulator.world import (
    DELAY,
    MINUTE_US,
    SOURCE,
    START_US,
    Begun,
    World,
    fresh_folder,
    open_world,
)
from tests.simulator.writes import Killed, killed_at, killing

HOUR = timedelta(hours=1)
HOUR_US = 60 * MINUTE_US
REFUSALS = (SettingsError, LakeError)
# After harm, also what an engine or a count says of it: loud, and nothing was written.
LOUD = (*REFUSALS, CheckpointError, RuntimeError)

DONE: Counter[str] = Counter()  # all actions of this process, by name


class Operations:
    """`do` carries an action out, and looks at everything after it."""

    def __init__(
        self, kind: str, on_error: str = "stop", opened: AbstractContextManager[World] | None = None
    ) -> None:
        self._stack = ExitStack()
        self.world: World = self._stack.enter_context(opened or open_world())
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.copies = Copies(self.world, folder)
        self.kind = kind
        self.world.configure(kind, on_error=on_error)
        self.auditor = Auditor(self.world, kind)
        self.harmed = False
        self._dies = False
        self.loud: tuple[type[BaseException], ...] = LOUD  # on Spark its own errors, too
        # On Spark an Exception: the JVM waits for ever for a callback that ends otherwise.
        self.death: type[BaseException] = Killed
        self.restart: Callable[[], object] = lambda: None  # what a process knows is gone

    def close(self) -> None:
        self._stack.close()

    @property
    def stream(self) -> Any:
        return self.world.streams[self.kind]

    def do(self, action: Action) -> None:
        """Raise WrongError when the table is wrong afterwards, and nobody says so."""
        DONE[action.name] += 1
        getattr(self, action.name)(**action.arguments)

    def some_days(self) -> None:
        """A beginning: rows of three days, folded, each with a savepoint."""
        for _ in range(3):
            for hour in (20, 11, 2):
                self._land([Landed("a", self._ago(60 * hour - 7), 1), Landed("b", self._ago(3), 2)])
                self.world.pass_time(8 * HOUR)
            self.run(None)

    # Rows that land: in time, late, ahead, of one instant, on edges

    def land_in_time(self, key: str, ago: list[int], value: int) -> None:
        self._land([Landed(key, self._ago(minute), value) for minute in ago])

    def land_late(self, key: str, ago: list[int], value: int) -> None:
        self._land([Landed(key, self._ago(60 * hour + 20), value) for hour in ago])

    def land_tied(self, key: str, values: list[int]) -> None:
        if rows := tied(self.world, key, values):
            self._land(rows)

    def land_on_edge(self, key: str, value: int, edge: int, around_us: int) -> None:
        if row := on_edge(self.world, key, value, edge, around_us):
            self._wait_for(row)
            self._land([row])

    def complete_on_edge(self, key: str, other: str, edge: int, around_ms: int) -> None:
        """The watermark comes to an end of something, and a run to its end."""
        if row := completing(self.world, key, other, edge, around_ms):
            self._wait_for(row)
            self._land([row])
            self.run(None)

    def _wait_for(self, row: Landed) -> None:
        self.world.now_us = max(self.world.now_us, row.time_us)

    def land_ahead(self, key: str, ahead: int) -> None:
        self._land([Landed(key, self._ago(-ahead), 1)])

    def land_far_ahead(self, key: str, hours: int) -> None:
        """Land a row under a machine clock that runs ahead, and is put right at once."""
        now_us = self.world.now_us
        self.world.now_us += hours * HOUR_US
        self._land([Landed(key, self.world.now_us, 1)])
        self.world.now_us = now_us

    def land_of_one(self, key: str, hours: int) -> None:
        """Land rows of one key alone for some hours."""
        for _ in range(hours):
            self._land([Landed(key, self._ago(1), 1)])
            self.world.pass_time(HOUR)

    def pass_time(self, span: int) -> None:
        self.world.pass_time(timedelta(minutes=span))

    def heartbeat(self) -> None:
        if self._is_clock_wrong():
            return  # ingestion refuses
        self.world.ingest_clock(self._ago(1))
        self.world.pass_time(timedelta(seconds=1))

    def _is_clock_wrong(self) -> bool:
        repair = amendments_of(self.world.lake, SOURCE.name).open
        return repair is not None and not repair.is_amended

    def _land(self, rows: list[Landed]) -> None:
        if self._is_clock_wrong():
            return  # ingestion refuses
        self.world.ingest(rows)
        self.world.pass_time(timedelta(seconds=7))
        self._audit()

    def _ago(self, minute: int) -> int:
        return self.world.now_us - minute * MINUTE_US + minute % 3  # some in one microsecond

    # Data and jobs

    def land_meanwhile(self, before_write: int, job: str, key: str, ago: int) -> None:
        """Rows come while a job is at work, and somebody looks at its table just then."""
        rows = [Landed(key, self._ago(60 * ago + 20), 1), Landed(key, self._ago(1), 2)]
        with killing(before_write, lambda: self._land_unless_leased(rows)):
            self._start(job, ago)

    def cut_off(self, job: str, kill: int, then: str, ago: int) -> None:
        """A process dies at its job, and another job comes upon what it left."""
        for minute in (30, 1):  # something to do, a part of which is complete
            self.land_in_time("a", [minute], 1)
        self._start(job, ago, kill)
        self.come_upon(then, ago)

    def come_upon(self, then: str, ago: int) -> None:
        """Run a job upon what another process left."""
        self._start(then, ago)

    def _start(self, job: str, ago: int, kill: int | None = None) -> None:
        given = {
            "rewind": {"ago": 30},
            "rescale": {"buckets": 3},
            "backfill": {"ago": ago, "span": 24},
            "set_watermark": {"ago": 5},
        }
        getattr(self, job)(kill=kill, **given.get(job, {}))

    def _land_unless_leased(self, rows: list[Landed]) -> None:
        with suppress(LeaseTakenError), hold_lease(self.world.lake, f"ingest-{SOURCE.name}"):
            self._land(rows)

    # Operations

    def run(self, kill: int | None) -> None:
        self._do(self._run_if_waiting, kill)

    def _run_if_waiting(self) -> None:
        if has_waiting_rows(self.world.lake, self.stream):
            drain(self.world.engine, self.world.lake, self.stream)

    def run_other(self, kill: int | None) -> None:
        """Another stream of the source, which shares bronze and the ops tables with this one."""
        kind = KINDS[KINDS.index(self.kind) - 1]
        lake, stream = self.world.lake, self.world.streams[kind]
        if has_waiting_rows(lake, stream):
            self._do(lambda: drain(self.world.engine, lake, stream), kill)
        with suppress(*REFUSALS):
            Auditor(self.world, kind).check()

    def compact(self, kill: int | None) -> None:
        self._do(lambda: compact(self.world.engine, self.world.lake, self.stream), kill)

    def savepoint(self, kill: int | None) -> None:
        do = lambda: savepoint(self.world.engine, self.world.lake, self.stream)  # noqa: E731
        self._do(do, kill)

    def backfill(self, ago: int, span: int, kill: int | None) -> None:
        complete = self._complete_until()
        if complete is None:
            return
        start = instant_of(micros_of(complete) // HOUR_US * HOUR_US) - ago * HOUR
        until = min(start + span * HOUR, complete)
        do = lambda: restate(self.world.engine, self.world.lake, self.stream, start, until)  # noqa: E731
        self._do(do, kill)

    def _complete_until(self) -> datetime | None:
        with suppress(*self.loud):
            return self.auditor.status()["complete_until"]  # type: ignore[no-any-return]
        return None

    def rebuild_after_backfill(self, kill: int | None) -> None:
        lake, stream = self.world.lake, self.stream
        start = instant_of(self.world.now_us // HOUR_US * HOUR_US)
        try:
            reason = why_not_rebuild(lake, stream, start, lambda dates: 0)
        except self.loud:
            return
        if reason is None:
            self._do(lambda: self._rebuild(RebuildOptions()), kill)

    def rebuild(self, kill: int | None) -> None:
        self._do(lambda: self._rebuild(RebuildOptions()), kill)

    def rescale(self, kill: int | None, buckets: int) -> None:
        self._do(lambda: self._rebuild(RebuildOptions(buckets=buckets)), kill)

    def full_refresh(self, kill: int | None) -> None:
        self._do(lambda: self._rebuild(RebuildOptions(full_refresh=True)), kill)

    def rewind(self, kill: int | None, ago: int) -> None:
        until = instant_of(self._ago(60 * ago))
        if micros_of(until) <= START_US:
            return
        self._do(lambda: self._rebuild(RebuildOptions(until=until)), kill)

    def migrate(self, kill: int | None) -> None:
        """To the state of variant d, as whoever deploys that one does next."""
        self.deploy("d")
        self._do(lambda: self._rebuild(RebuildOptions(migrate_state=True)), kill)

    def _rebuild(self, options: RebuildOptions) -> None:
        before = self._mapped_as_of()
        landed = len(self.world.commits)
        rebuild(self.world.engine, self.world.lake, self.stream, options)
        if before is not None and self._mapped_as_of() is None and not options.full_refresh:
            raise WrongError("a rebuild gave the mapped states up, and nobody had asked for it")
        verdict = self.auditor.check()
        if len(self.world.commits) > landed:
            return  # of what came meanwhile it has said what is missing
        if verdict is None or verdict.wrong or not verdict.live_is_right:
            raise WrongError(f"after a rebuild the table is not right: {verdict}")

    def _mapped_as_of(self) -> datetime | None:
        with suppress(*self.loud):
            return self.auditor.status()["states_mapped_as_of"]  # type: ignore[no-any-return]
        return None

    def mend_by_rebuild(self) -> None:
        """A full refresh, which all messages name in the end, makes the table right whatever has happened."""
        if self._is_clock_wrong():
            return  # the clock comes first
        self.world.pass_time(timedelta(seconds=3))
        try:
            self._rebuild(RebuildOptions(full_refresh=True))
            self._run_if_waiting()
        except self.loud as error:
            raise WrongError(f"a full refresh does not mend it: {error}") from error
        self._audit()

    def set_watermark(self, kill: int | None, ago: int) -> None:
        """To some instant before now; or what is left of one."""
        lake = self.world.lake
        begun = amendments_of(lake, SOURCE.name).open
        to = None if begun else instant_of(self._ago(ago))
        self._do(lambda: set_watermark(self.world.engine, lake, self.world.source, to), kill)

    # Changes

    def change_delay(self, minutes: int) -> None:
        self.world.configure(self.kind, watermark_delay=timedelta(minutes=minutes))
        self._audit()

    def usual_delay(self) -> None:
        self.world.configure(self.kind, watermark_delay=DELAY)
        self._audit()

    def deploy_failing(self) -> None:
        self.deploy("e")

    def deploy(self, variant: str) -> None:
        self.world.deploy(self.kind, variant)
        self._audit()

    # Harm

    def back_up(self) -> None:
        self.copies.take(self.kind)

    def put_back(self, part: str) -> None:
        """A part that is older than the others."""
        self.put_back_parts(part)

    def put_back_stream(self) -> None:
        """All of the stream, as of one time; bronze is newer."""
        self.put_back_parts("dead_letters", *OF_STREAM)

    def put_back_parts(self, *parts: str) -> None:
        if self.copies.made:
            self.harmed = True
            self.copies.put_back(self.kind, *parts)
            self.restart()
            self._audit()

    def lose(self, part: str) -> None:
        self.harmed = True
        lose(self.world, self.kind, part)
        self._audit()

    def write_to(self, part: str) -> None:
        """Somebody else has a hand in it: a row is there once more."""
        path = parts_of(self.world, self.kind)[part]
        with suppress(DeltaError):  # of a table that came to harm
            self.harmed = append_again(path) or self.harmed
        self.restart()
        self._audit()

    def write_to_bronze(self, job: str, ago: int) -> None:
        """The same, and what a job makes of it, before it is put back as that job says."""
        path = parts_of(self.world, self.kind)["bronze"]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(path, copy := Path(folder, "bronze"))
            append_again(path)
            self.restart()
            self._start(job, ago)
            shutil.rmtree(path)
            shutil.copytree(copy, path)
        self.restart()
        self._audit()

    def two_lives(self, part: str, job: str, runs: list[bool]) -> None:
        """The lake is copied and lives on; the copy is put back and lives on otherwise; then a part
        of the first life comes in its place, and a job upon it. Bronze is put back after that."""
        root = Path(self.world.lake.root)
        marks, commits = list(self.auditor.marks), list(self.world.commits)
        with tempfile.TemporaryDirectory() as folder:
            copy, first, second = (Path(folder, name) for name in ("copy", "first", "second"))
            shutil.copytree(root, copy)
            self._live("a", runs[0])
            shutil.move(root, first)
            shutil.copytree(copy, root)
            self.auditor.marks, self.world.commits = marks, commits
            self.restart()
            self._live("b", runs[1])
            shutil.copytree(root, second)
            self.harmed = True
            names = ["bronze"] if part == "bronze" else ["table", "dead_letters", "checkpoint"]
            places = [parts_of(self.world, self.kind)[n].relative_to(root) for n in names]
            self._replace(places, first)
            self._start(job, 5)
            if part == "bronze":
                self._replace(places, second)
                self._audit()

    def _live(self, key: str, runs: bool) -> None:
        self.world.pass_time(timedelta(minutes=30))
        self.land_in_time(key, [2, 1], 1)
        self.world.pass_time(timedelta(minutes=30))
        self.heartbeat()
        if runs:
            self.run(None)

    def _replace(self, places: list[Path], life: Path) -> None:
        for place in places:
            shutil.rmtree(target := Path(self.world.lake.root, place), ignore_errors=True)
            if (life / place).exists():
                shutil.copytree(life / place, target)
        self.restart()

    def power_cut(self) -> None:
        self.harmed = True
        empty_newest_commit(self.world, self.kind)
        self.restart()
        self._audit()

    # Maintenance, and time

    def optimize(self, part: str) -> None:
        """Join the files of a table, as its maintenance does."""
        path = parts_of(self.world, self.kind)[part]
        if DeltaTable.is_deltatable(str(path)):
            with suppress(DeltaError):  # of a table that came to harm
                DeltaTable(str(path)).optimize.compact()
        self._audit()

    def clean_log(self, part: str) -> None:
        """Months later: what the log kept of old commits is gone."""
        path = parts_of(self.world, self.kind)[part]
        if DeltaTable.is_deltatable(str(path)):
            with suppress(LakeError):  # the maintenance of each week has said its record again
                table = Table.open(self.world.lake, str(path))
                if record := table.record():
                    table.commit([], record)
            with suppress(DeltaError):
                clean_log(path)
        # A stream that was behind is cut off: loud, and a rebuild mends it.
        self.harmed = self.harmed or part == "bronze"
        self._audit()

    # How

    @contextmanager
    def dying_before(self, function: str) -> Iterator[None]:
        """The process of whatever is done in the body dies before it calls `function`."""

        def die(*_: Any, **__: Any) -> None:
            raise self.death(f"before {function}")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(function, die)
            self._dies = True
            yield
            self._dies = False

    def _do(self, job: Callable[[], object], kill: int | None) -> None:
        """Do it, to its end or to a kill; what it refuses must be for a reason."""
        self.world.pass_time(timedelta(seconds=3))
        try:
            if kill is None:
                self._do_to_its_end(job)
            else:
                killed_at(kill, job)
        except REFUSALS:
            pass
        except self.loud:
            if not self.harmed:
                raise
        self.world.note_repairs()
        self._audit()

    def _do_to_its_end(self, job: Callable[[], object]) -> None:
        try:
            job()
        except (Killed, Exception) as error:
            if not self._dies or isinstance(error, REFUSALS):
                raise
        else:
            assert not self._dies, "it was to die"

    def _audit(self) -> None:
        self.auditor.check_clock()
        with suppress(*REFUSALS):  # it cannot even be judged, and says so
            self.auditor.check()


@cache
def some_days(kind: str) -> Begun:
    """The world of `Operations.some_days`, which many tests go on from."""
    operations = Operations(kind)
    operations.some_days()
    folder = fresh_folder()
    atexit.register(shutil.rmtree, folder)
    begun = operations.world.copied(folder)
    operations.close()
    return begun


# Rows where bugs of a boundary show: at one instant, at the very end of a span, or just around it

CANDIDATES = 40  # numbers, of which one gives a row what another row is known by


def tied(world: World, key: str, values: Sequence[int]) -> list[Landed]:
    """Rows at the instant of the key's newest one, in this order; one of the same value is it again."""
    newest = _newest(world, Landed(key, world.now_us, values[0]))
    return [] if newest is None else [newest._replace(value=value) for value in values]


def on_edge(world: World, key: str, value: int, edge: int, around_us: int) -> Landed | None:
    """A row after the key's newest one, just when something of it comes to its end."""
    newest = _newest(world, Landed(key, world.now_us, value))
    if newest is None:
        return None
    at_us = newest.time_us + _deadline_us(world, edge) + around_us
    return next(_known_again(world, newest, Landed(key, at_us, value)))


def completing(world: World, key: str, other: str, edge: int, around_ms: int) -> Landed | None:
    """A row that moves the watermark of a stream to that instant, or a millisecond beside it."""
    newest = _newest(world, Landed(key, world.now_us, 0))
    if newest is None:
        return None
    end_us = newest.time_us + _deadline_us(world, edge) + DELAY // DELAY.resolution
    return Landed(other, (end_us // 1000 + around_ms) * 1000, 1)


def _newest(world: World, like: Landed) -> Landed | None:
    """The newest row, until now, of the key that a row has."""
    of = world.shape.key_of
    key = of(like)
    rows = (row for commit in world.commits for row in commit.rows if row.time_us <= world.now_us)
    return max((row for row in rows if of(row) == key), default=None, key=lambda row: row.time_us)


def _deadline_us(world: World, edge: int) -> int:
    deadlines = world.shape.deadlines_us
    return deadlines[edge % len(deadlines)]


def _known_again(world: World, newest: Landed, row: Landed) -> Iterator[Landed]:
    """The row with a number that makes it a duplicate of the newest one, if there is one; or as it is."""
    shape = world.shape
    if shape.by:
        same = (row._replace(value=row.value % 2 + 2 * n) for n in range(CANDIDATES))
        yield from (each for each in same if shape.seen(each) == shape.seen(newest))
    yield row
