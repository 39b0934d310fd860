"""The steps of a rehearsal: what is run, and what is broken while it runs."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.lake.process_tree import wait_until
from include.registry import all_streams, stream_named
from include.settings import Stream
from tests.rehearsal.api import RehearsalApi
from tests.rehearsal.cluster import USER, Cluster
from tests.rehearsal.landed import LATE_SIGNALS, START, Landing
from tests.rehearsal.oracle import compare, row_counts
from tests.rehearsal.process import Folders
from tests.rehearsal.report import Steps
from tests.rehearsal.runs import DagRuns, RehearsalError
from tests.rehearsal.services import Say
from tests.rehearsal.spark_cluster import SparkCluster

# Each the only one of its source: without rows, those of the others start no JVM.
SHORT = ("device_signals", "service_health")
API_PORT, MASTER_UI_PORT, WORKER_PORT = 8080, 8082, 7078
OUTAGE_DEADLINE = 120.0


@dataclass
class Scenario:
    """All that the steps act upon."""

    cluster: Cluster
    folders: Folders
    landing: Landing
    steps: Steps
    streams: Sequence[Stream]
    say: Say

    def __post_init__(self) -> None:
        self.spark = SparkCluster(self.cluster.url("spark-master", MASTER_UI_PORT))
        self.api = RehearsalApi(self.cluster.url("airflow-apiserver", API_PORT))
        self.runs = DagRuns(self.api, self.spark, self.lake, self.landing, self.say)

    @property
    def lake(self) -> Lake:
        return self.cluster.lake

    def start(self) -> None:
        sources = {stream.source for stream in self.streams}
        with self.step("land the first part of each source, start all services"):
            for source in sorted(sources):
                self.landing.stage(source)
                self.landing.land_next(source)
            started_at = datetime.now(UTC)
            self.cluster.services.up()
            self.api.log_in(USER, self.cluster.password)
        with self.step("begin a run of every stream"):
            self.runs.begin(self.streams, started_at)

    def first_runs(self) -> None:
        with self.step("run every stream through the cluster"):
            self.runs.finish_begun()

    def kill_worker(self, stream: Stream) -> None:
        """The restart policy must bring it back, and the run must succeed without it."""

        def kill() -> None:
            worker = self._busy_worker()
            restarts = self.cluster.services.peaks[worker].restarts
            self.say(f"   kill -9 of {worker}")
            self.cluster.services.process(worker).kill_main()
            self._wait_for(
                lambda: self.cluster.services.peaks[worker].restarts > restarts,
                f"{worker} was not restarted",
            )

        with self.step(f"kill a Spark worker while {stream.name} runs"):
            self.runs.disturb(stream, kill)
            self._wait_for(
                lambda: len(self.spark.alive_workers()) == 2, "there are not two workers again"
            )

    def restart_scheduler(self, stream: Stream) -> None:
        def restart() -> None:
            self.cluster.services.stop("airflow-scheduler")
            self.say("   airflow-scheduler has ended")
            self.cluster.services.start("airflow-scheduler")

        with self.step(f"restart the scheduler while {stream.name} runs"):
            self.runs.disturb(stream, restart)

    def stop_database(self, stream: Stream) -> None:
        def stop_and_start() -> None:
            self.cluster.services.stop("postgres")
            self._wait_for(self._database_is_missed, "Airflow has not missed its database")
            self.say("   PostgreSQL is stopped, and Airflow says so")
            self.cluster.services.start("postgres")
            self.cluster.services.wait_until_up("postgres")
            self.say("   PostgreSQL is back")

        with self.step(f"stop PostgreSQL while {stream.name} runs, and start it"):
            self.runs.disturb(stream, stop_and_start)
            self.cluster.services.wait_until_all_up()

    def stop_everything(self, stream: Stream) -> None:
        def stop_and_start() -> None:
            self.cluster.services.kill_all()
            self.say("   everything is killed, PostgreSQL too")
            self.cluster.services.up()
            self.say("   everything is healthy again")

        with self.step(f"stop the whole cluster while {stream.name} runs, and start it"):
            self.runs.disturb(stream, stop_and_start)

    def savepoint(self, stream: Stream) -> None:
        with self.step(f"write a savepoint of {stream.name}"):
            before = len(self._savepoints(stream))
            self._execute("savepoint", "savepoint", stream.name)
            if len(self._savepoints(stream)) != before + 1:
                raise RehearsalError(f"there is no new savepoint of {stream.name}")

    def compaction(self, stream: Stream) -> None:
        with self.step(f"compact the state of {stream.name}"):
            self._execute("compact", "care", stream.name, "--compact")

    def backfill(self, stream: Stream) -> None:
        """Late rows, which live does not fold: a backfill with promote takes them in."""
        with self.step(f"backfill {stream.name}: take in signals that come too late"):
            self.landing.land_late_signals()
            self.runs.once_more([stream])
            if (late := row_counts(self.lake, stream)["late"]) != LATE_SIGNALS:
                raise RehearsalError(f"{LATE_SIGNALS} signals came too late, and {late} are late")
            self.runs.backfill(stream, START, START + timedelta(hours=1))
            if not compare(self.lake, stream).is_equal:
                raise RehearsalError("the late signals are not in the table after the backfill")

    def finish(self) -> None:
        with self.step("land the rest, run every stream once more"):
            for source in sorted({stream.source for stream in self.streams}):
                while self.landing.has_next(source):
                    self.landing.land_next(source)
            self.runs.once_more(self.streams)

    def step(self, name: str) -> AbstractContextManager[None]:
        return self.steps.step(name)

    def _execute(self, what: str, *arguments: str) -> None:
        """As `docker compose exec airflow-scheduler` would; RehearsalError when it fails."""
        log = self.folders.log(what)
        command = ["python", "-m", "include.cli", *arguments]
        code = self.cluster.execute("airflow-scheduler", command, log)
        if code:
            end = log.read_text(errors="replace")[-3000:]
            raise RehearsalError(f"{' '.join(command)} ended with {code}. The end of {log}:\n{end}")

    def _savepoints(self, stream: Stream) -> list[object]:
        where = {"stream": stream.name, "origin": "on_demand"}
        return list(read_ops(self.lake, "savepoints", where).to_pylist())

    def _busy_worker(self) -> str:
        busy = self.spark.busy_ports()
        workers = [
            service
            for (service, port), ours in self.cluster.places.ports.items()
            if port == WORKER_PORT and ours in busy
        ]
        if not workers:
            raise RehearsalError("no Spark worker runs an executor")
        return workers[0]

    def _database_is_missed(self) -> bool:
        health = self.api.health()
        return health is None or health["metadatabase"]["status"] != "healthy"

    def _wait_for(self, condition: Callable[[], bool], otherwise: str) -> None:
        if not wait_until(condition, OUTAGE_DEADLINE):
            raise RehearsalError(otherwise)


def short(scenario: Scenario) -> None:
    """In a few minutes: what is likeliest to break."""
    signals, health = (stream_named(name) for name in SHORT)
    scenario.start()
    scenario.kill_worker(signals)  # in its first run: a run less
    scenario.first_runs()
    scenario.savepoint(signals)
    scenario.stop_everything(health)


def whole(scenario: Scenario) -> None:
    """Everything that issue and README promise of a cluster."""
    streams = {stream.name: stream for stream in all_streams()}
    scenario.start()
    scenario.first_runs()
    scenario.kill_worker(streams["user_counts"])
    scenario.restart_scheduler(streams["device_signals"])
    scenario.stop_database(streams["user_sessions"])
    scenario.savepoint(streams["user_counts"])
    scenario.compaction(streams["user_counts"])
    scenario.backfill(streams["device_signals"])
    scenario.stop_everything(streams["service_health"])
    scenario.finish()
