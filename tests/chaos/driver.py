"""One driver of a seed: goes on where the one before it was killed, until it is killed, or done.

    python -m tests.chaos.driver FOLDER

Its Spark stays from job to job, as no real one's does, but for what a new process would not know:
open logs of tables and state stores. How it ends: done (0), by a kill that it has noted, after the
kill of its JVM (`JVM_KILLED`), or wrong, with what is wrong as its last words.
"""

import logging
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

import tests.conftest  # noqa: F401  (the environment of the tests)
from include.lake.errors import LakeError
from spark_jobs.job import close_state_stores
from tests.chaos.killer import Killer
from tests.chaos.known import Known, read_known
from tests.chaos.plan import Kill, Plan, kill_of
from tests.faults.spark_session import spark_session
from tests.simulator import writes
from tests.simulator.actions import Action
from tests.simulator.auditor import WrongError
from tests.simulator.operations import Operations
from tests.simulator.spark_world import spark_world

JVM_KILLED = 3
PLAN, KNOWN, KILLS = "plan", "known", "kills"
# Its rows land while a job is at work, and would not be known of.
NOT_KILLED = "land_meanwhile"


class Driver(Operations):
    """Operations whose processes die in earnest."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._spark = spark_session()
        world = spark_world(self._spark, plan.source, plan.shape, folder)
        super().__init__(plan.kind, plan.on_error, world)
        self._plan = plan
        self._path = folder / KNOWN
        self._known: Known = read_known(self._path)
        self._killer = Killer(Path(self.world.lake.root), folder / KILLS)
        self.loud = (*self.loud, PySparkException, Py4JError)
        self.restart = self._forget

    def go_on(self) -> None:
        """To the end of the plan."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writes, "die", self._die)
            if self._known.retained:
                self._take_over()
            while self._known.step < len(self._plan.actions):
                say(f"{self._known.step}: {self._action}")
                self.do(self._action)
                self._next_step()

    @property
    def _action(self) -> Action:
        return self._plan.actions[self._known.step]

    def _take_over(self) -> None:
        """Go on with what the driver before left in the middle of an action."""
        self._known.give(self)
        if self.world.landed is not None:  # at the same instant, as perhaps it has been taken
            self.world.take_landed()
        self.world.pass_time(timedelta(seconds=7))
        self.world.note_repairs()
        self._audit()
        self._finish(self._action)
        self._next_step()

    def _finish(self, action: Action) -> None:
        """The job that comes upon what the killed one left."""
        if action.name == "cut_off" and self._known.job == 1:
            self.come_upon(action.arguments["then"], action.arguments["ago"])

    def _next_step(self) -> None:
        self._known.step += 1
        self._known.job = 0
        self._keep()

    def _keep(self) -> None:
        self._known.keep(self)
        self._known.write(self._path)

    def _forget(self) -> None:
        """Forget what a new process would not know."""
        assert self._spark._jvm is not None
        self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        close_state_stores(self._spark)

    def _do(self, job: Callable[[], object], kill: int | None) -> None:
        self._forget()
        self._known.job += 1
        self._keep()
        with self._killer.armed(None if kill else self._planned):
            super()._do(lambda: self._or_killed(job), kill)
        if self._killer.hit == "jvm":  # when the job had no more use of it
            os._exit(JVM_KILLED)

    @property
    def _planned(self) -> Kill | None:
        if self._action.name == NOT_KILLED:
            return None
        return kill_of(self._plan, self._known.step, self._known.job)

    def _die(self, where: str) -> None:
        self._keep()  # of a landing what is still to be taken
        self._killer.die(where)

    def _or_killed(self, job: Callable[[], object]) -> None:
        """A job whose JVM or workers are killed may fail. With its JVM its process ends."""
        try:
            job()
        except WrongError:
            raise
        except Exception as error:
            if self._killer.hit is None:
                raise
            if self._killer.hit == "jvm":
                os._exit(JVM_KILLED)
            raise LakeError("its workers were killed") from error


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    folder = Path(sys.argv[1])
    warnings.simplefilter("ignore")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    plan: Plan = pickle.loads((folder / PLAN).read_bytes())
    driver = Driver(folder, plan)
    try:
        driver.go_on()
    finally:
        driver.close()


if __name__ == "__main__":
    main()
