"""One stream of a world, and everything that can be done to it: data, jobs, changes, harm."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from include.fold.admission import instant_of, micros_of
from include.lake.lease import LeaseTakenError, hold_lease
from include.lake.paths import LakeError
from include.landing.amendments import amendments_of
from include.plans.open_stream import has_waiting_rows
from include.plans.plan_recompute import why_not_promote
from include.plans.reseed_plan import ReseedOptions
from include.settings import SettingsError
from spark_jobs.compact_state import compact
from spark_jobs.recompute_interval import recompute
from spark_jobs.repair_clock import repair_clock
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from spark_jobs.write_savepoint import savepoint
from tests.simulator.actions import Action
from tests.simulator.auditor import Auditor, WrongError
from tests.simulator.checkpoint_log import CheckpointError
from tests.simulator.damage import Copies
from tests.simulator.data_operations import HOUR, HOUR_US, DataOperations
from tests.simulator.harm_operations import HarmOperations
from tests.simulator.oracle import Landed
from tests.simulator.stream_files import KINDS
from tests.simulator.world import DELAY, SOURCE, START_US, World, open_world
from tests.simulator.writes import Killed, killed_at, killing

REFUSALS = (SettingsError, LakeError)
# After harm, also what an engine or a count says of it: loud, and nothing was written.
LOUD = (*REFUSALS, CheckpointError, RuntimeError)

DONE: Counter[str] = Counter()  # all actions of this process, by name


class Operations(DataOperations, HarmOperations):
    """`do` carries an action out, and looks at everything after it."""

    def __init__(
        self,
        kind: str,
        on_error: str = "stop",
        opened: AbstractContextManager[World] | None = None,
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

    # Data and jobs

    def land_meanwhile(self, before_write: int, job: str, key: str, ago: int) -> None:
        """Rows come while a job is at work, and somebody looks at its table just then."""
        rows = [Landed(key, self._ago(60 * ago + 20), 1), Landed(key, self._ago(1), 2)]
        with killing(before_write, lambda: self._land_unless_leased(rows)):
            self._start(job, ago)

    def cut_off(self, job: str, kill: int, then: str, ago: int) -> None:
        """A process dies at its job, and another job comes upon what it left."""
        for minute in (30, 1):  # something to do, a part of which is settled
            self.land_in_time("a", [minute], 1)
        self._start(job, ago, kill)
        self.come_upon(then, ago)

    def come_upon(self, then: str, ago: int) -> None:
        """What another process left."""
        self._start(then, ago)

    def _start(self, job: str, ago: int, kill: int | None = None) -> None:
        given = {
            "rewind": {"ago": 30},
            "rescale": {"buckets": 3},
            "backfill": {"ago": ago, "span": 24},
            "repair_clock": {"ago": 5},
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
        settled = self._complete_until()
        if settled is None:
            return
        start = instant_of(micros_of(settled) // HOUR_US * HOUR_US) - ago * HOUR
        until = min(start + span * HOUR, settled)
        do = lambda: recompute(self.world.engine, self.world.lake, self.stream, start, until)  # noqa: E731
        self._do(do, kill)

    def _complete_until(self) -> datetime | None:
        with suppress(*self.loud):
            return self.auditor.told()["complete_until"]  # type: ignore[no-any-return]
        return None

    def promote(self, kill: int | None) -> None:
        lake, stream = self.world.lake, self.stream
        start = instant_of(self.world.now_us // HOUR_US * HOUR_US)
        try:
            reason = why_not_promote(lake, stream, start, lambda dates: 0)
        except self.loud:
            return
        if reason is None:
            self._do(lambda: self._reseed(ReseedOptions()), kill)

    def reseed(self, kill: int | None) -> None:
        self._do(lambda: self._reseed(ReseedOptions()), kill)

    def rescale(self, kill: int | None, buckets: int) -> None:
        self._do(lambda: self._reseed(ReseedOptions(buckets=buckets)), kill)

    def recompute_all(self, kill: int | None) -> None:
        self._do(lambda: self._reseed(ReseedOptions(recompute=True)), kill)

    def rewind(self, kill: int | None, ago: int) -> None:
        until = instant_of(self._ago(60 * ago))
        if micros_of(until) <= START_US:
            return
        self._do(lambda: self._reseed(ReseedOptions(until=until)), kill)

    def migrate(self, kill: int | None) -> None:
        """To the state of variant d, as whoever deploys that one does next."""
        self.deploy("d")
        self._do(lambda: self._reseed(ReseedOptions(from_state=True)), kill)

    def _reseed(self, options: ReseedOptions) -> None:
        before = self._mapped_as_of()
        landed = len(self.world.commits)
        reseed(self.world.engine, self.world.lake, self.stream, options)
        if before is not None and self._mapped_as_of() is None and not options.recompute:
            raise WrongError("a reseed gave the mapped states up, and nobody had asked for it")
        verdict = self.auditor.check()
        if len(self.world.commits) > landed:
            return  # of what came meanwhile it has said what is missing
        if verdict is None or verdict.wrong or not verdict.live_is_right:
            raise WrongError(f"after a reseed the table is not right: {verdict}")

    def _mapped_as_of(self) -> datetime | None:
        with suppress(*self.loud):
            return self.auditor.told()["states_mapped_as_of"]  # type: ignore[no-any-return]
        return None

    def way_out(self) -> None:
        """What all messages name in the end makes the table right, whatever has happened to it."""
        repair = amendments_of(self.world.lake, SOURCE.name).repair
        if repair is not None and not repair.is_reset:
            return  # the clock comes first
        self.world.pass_time(timedelta(seconds=3))
        try:
            self._reseed(ReseedOptions(recompute=True))
            self._run_if_waiting()
        except self.loud as error:
            raise WrongError(f"there is no way out: {error}") from error
        self._audit()

    def repair_clock(self, kill: int | None, ago: int) -> None:
        """To some instant before now; or what is left of one."""
        lake = self.world.lake
        begun = amendments_of(lake, SOURCE.name).open_repair
        to = None if begun else instant_of(self._ago(ago))
        self._do(lambda: repair_clock(self.world.engine, lake, self.world.source, to), kill)

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
