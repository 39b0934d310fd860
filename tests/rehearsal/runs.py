"""Dag runs on the rehearsal's cluster, and what happens to it while one is under way."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from include.airflow.first_runs import FINAL, FirstRuns, Run
from include.airflow.progress import PlainLines
from include.checkpoint.offsets import newest_committed, newest_planned
from include.lake.generations import read_generations
from include.lake.paths import Lake
from include.settings import Stream
from tests.rehearsal.api import RehearsalApi, patiently
from tests.rehearsal.landed import Landing
from tests.rehearsal.services import Say
from tests.rehearsal.spark_cluster import SparkCluster

RUN_DEADLINE = 1800.0
SECONDS_BETWEEN_LOOKS = 0.2
LOOKS_BETWEEN_CALLS = 10


class RehearsalError(Exception):
    """Something did not go as it must; the message says what."""


class DagRuns:
    """Runs of streams' Dags: triggered, watched and waited for, over outages of Airflow."""

    def __init__(
        self, api: RehearsalApi, spark: SparkCluster, lake: Lake, landing: Landing, say: Say
    ) -> None:
        self._api = api
        self._spark = spark
        self._lake = lake
        self._landing = landing
        self._say = say
        self._triggered = 0
        self._begun: dict[str, Run] = {}  # first runs, by their streams

    def begin(self, streams: Sequence[Stream], started_at: datetime) -> None:
        """The first run of each Dag: the one that Airflow makes as it is due, or one triggered."""
        runs = self._first_runs(started_at)
        for stream in streams:
            run = patiently(partial(runs.start, dag_id(stream)))
            if run is not None:
                self._begun[stream.name] = run

    def finish_begun(self) -> None:
        """Wait for the first runs that are still under way."""
        self._wait(list(self._begun.values()))
        self._begun.clear()

    def once_more(self, streams: Sequence[Stream]) -> None:
        """A run of each, to its end."""
        self._wait([self._trigger(stream) for stream in streams])

    def disturb(self, stream: Stream, what: Callable[[], None]) -> None:
        """Do `what` while a run of `stream` folds; all runs must succeed then.

        That is its first one, if it is under way; else the next part lands, for another.
        """
        run = self._begun.pop(stream.name, None)
        while run is not None or self._landing.has_next(stream.source):
            if run is None:
                self._landing.land_next(stream.source)
                run = self._trigger(stream)
            folding = self._wait_until_folding(run, stream)
            if folding is not None:
                batch = newest_planned(self._lake, self._checkpoint(stream))
                self._say(f"   {folding.run_id} has begun batch {batch}, and not committed it")
                what()
                self._wait(list(dict.fromkeys([folding, run])))
                return
            self._say("   the run was over before: once more, with the next part")
            run = None
        raise RehearsalError(f"no run of {stream.name} could be seen while it was folding")

    def backfill(self, stream: Stream, start: datetime, until: datetime) -> None:
        """Recompute the intervals that begin from `start` to `until`, and promote at the end."""
        name = dag_id(stream)
        number = self._api.backfill(name, start, until, {"promote": True})
        self._say(f"   backfill {number} of {name}, {start:%H:%M} to {until:%H:%M}, with promote")
        deadline = time.monotonic() + RUN_DEADLINE
        while patiently(lambda: self._api.get(f"backfills/{number}"))["completed_at"] is None:
            _check(deadline, f"backfill {number}")
            time.sleep(SECONDS_BETWEEN_LOOKS)
        runs = patiently(lambda: self._api.get(f"dags/{name}/dagRuns", run_type="backfill"))
        self._wait([Run(name, run["dag_run_id"]) for run in runs["dag_runs"]])

    def _trigger(self, stream: Stream) -> Run:
        self._triggered += 1
        run = Run(dag_id(stream), f"rehearsal__{self._triggered}")
        patiently(lambda: self._api.trigger_once(run.dag_id, run.run_id))
        return run

    def _wait(self, runs: Sequence[Run | None]) -> None:
        """Until all have ended; RehearsalError when one has failed."""
        waiting = [run for run in runs if run is not None]
        first_runs = self._first_runs(datetime.now(UTC))
        if failures := patiently(lambda: first_runs.wait(waiting)):
            raise RehearsalError("\n".join(failures))

    def _first_runs(self, started_at: datetime) -> FirstRuns:
        deadline = time.monotonic() + RUN_DEADLINE
        return FirstRuns(
            self._api,
            started_at,
            PlainLines(lambda line: self._say(f"   {line}")),
            lambda: _check(deadline, "the runs"),
        )

    def _wait_until_folding(self, run: Run, stream: Stream) -> Run | None:
        """The run whose Spark application has begun a batch; None when `run` has ended before.

        It may be a scheduled one, which came first and has taken the rows.
        """
        deadline = time.monotonic() + RUN_DEADLINE
        while patiently(lambda: self._api.dag_run(run.dag_id, run.run_id))["state"] not in FINAL:
            _check(deadline, run.run_id)
            # The checkpoint is looked at often, as a batch is over soon; Airflow is asked rarely.
            for _ in range(LOOKS_BETWEEN_CALLS):
                if (folding := self._folding(stream)) is not None:
                    return folding
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return None

    def _folding(self, stream: Stream) -> Run | None:
        checkpoint = self._checkpoint(stream)
        planned = newest_planned(self._lake, checkpoint)
        if planned is None or planned == newest_committed(self._lake, checkpoint):
            return None
        if not self._spark.is_running(f"run_stream-{stream.name}"):
            return None
        for run in patiently(lambda: self._api.dag_runs(dag_id(stream))):
            name = run["dag_run_id"]
            if run["state"] == "running" and self._is_running(stream, name, "run_stream"):
                return Run(dag_id(stream), name)
        return None

    def _is_running(self, stream: Stream, run_id: str, task_id: str) -> bool:
        tasks = patiently(lambda: self._api.task_instances(dag_id(stream), run_id))
        return any(task["task_id"] == task_id and task["state"] == "running" for task in tasks)

    def _checkpoint(self, stream: Stream) -> str:
        return self._lake.checkpoint(stream.name, read_generations(self._lake, stream.name).number)


def dag_id(stream: Stream) -> str:
    return f"stream_{stream.name}"


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise RehearsalError(f"{what} did not end within {RUN_DEADLINE:.0f} s")
