"""Airflow on this machine, from one command: `make run`.

Starts Airflow with everything it writes in the project's .airflow, says where it is, runs each
stream once, shows the results, and serves until Ctrl-C. What it started ends with it.

The runs that `make run` waits for, one of each stream's Dag.

A run of this start: one that the scheduler made because it was due, or else one
triggered here. Never both, and never one left over from an earlier start.

Airflow's parts as processes of this one, started in the order in which they need each other.

Not `airflow standalone`: it starts all at once, so that the first tasks find no API; and it has
one server for people and for tasks, which on SQLite stops both now and then. That server writes
down what a person does in its event loop, and waits there for the database. Who holds it may be a
task's request, which cannot commit before the event loop comes back to it.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from urllib.error import URLError

import psutil

from include.airflow.api import AirflowApi, AirflowFailedError
from include.airflow.environment import (
    HOME,
    HOST,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    PRIVATE_UMASK,
    USER,
    airflow_environment,
    any_free_port,
    make_password,
    make_private_home,
    password,
    refuse_taken,
)
from include.ingest.landed_file import landed_files
from include.lake.errors import LakeError, SettingsError, last_line
from include.lake.lease import wait_until
from include.lake.paths import Lake
from include.observe.stream_line import run_report
from include.registry import all_sources, all_streams
from include.run_local import show_result
from include.sample.sample_data import Options, land_samples, sample_start
from include.settings import PROJECT
from include.spark.submit import say
from include.text_table import printable

Say = Callable[[str], None]

SECONDS_BETWEEN_LOOKS = 1.0
# Parsing is done within seconds of the start; on a loaded machine within a minute.
PARSE_DEADLINE = 300.0
FINAL = ("success", "failed")
# For the scheduler to make a run that is due: seconds, unless someone has set it otherwise.
DUE_DEADLINE = 120.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on, orphans below this process become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def interrupt_me_with_parent() -> None:
    """For a child, between fork and exec: SIGINT when its parent is gone."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def descendants() -> list[int]:
    """The processes below this one, parents first; none that is dead and not yet waited for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    return [process.pid for process in psutil.Process().children(recursive=True)]


def end_descendants(patience: float = 5.0) -> list[int]:
    """End all that is left below this process; what could not be ended is returned."""
    steps: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)
    for step in steps:
        for pid in descendants():
            with suppress(ProcessLookupError):  # it may have ended since it was listed
                os.kill(pid, step)
        if wait_until(lambda: not descendants(), patience):
            break
    return descendants()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


@dataclass(frozen=True)
class Run:
    dag_id: str
    run_id: str

    @property
    def name(self) -> str:
        """The stream's, for people."""
        return self.dag_id.removeprefix("stream_")


class FirstRuns:
    """The first runs after `started_at`; `look` is called between polls and may raise."""

    def __init__(
        self, api: AirflowApi, started_at: datetime, say: Say, look: Callable[[], None]
    ) -> None:
        self._api = api
        self._started_at = started_at
        self._say = say
        self._look = look

    def start(self, dag_id: str) -> Run | None:
        """The run of `dag_id` to wait for; None when a person has paused the Dag."""
        dag = self._wait_until_parsed(dag_id)
        if dag["is_paused"]:
            self._say(f"{dag_id}: paused in Airflow, not run")
            return None
        self._fail_interrupted(dag_id)
        deadline = time.monotonic() + DUE_DEADLINE
        while _is_due(dag) and not self._runs_of_this_start(dag_id) and time.monotonic() < deadline:
            self._pause()
            dag = self._api.get(f"dags/{dag_id}")
        runs = self._runs_of_this_start(dag_id)
        # The same name in all Dags, as the scheduler's have: those of a source share a JVM.
        name = f"manual__{self._started_at.isoformat()}"
        run = Run(dag_id, runs[0]["dag_run_id"] if runs else self._api.trigger(dag_id, name))
        self._say(f"{run.name}: running")
        return run

    def wait(self, runs: Sequence[Run]) -> list[str]:
        """Return when all have ended: what failed."""
        waiting = list(runs)
        failures = []
        while waiting:
            for run in list(waiting):
                state = self._api.dag_run(run.dag_id, run.run_id)["state"]
                if state in FINAL:
                    waiting.remove(run)
                    self._say(f"{run.name}: {'done' if state == 'success' else 'failed'}")
                if state == "failed":
                    failures.append(self._failure(run))
            if waiting:
                self._pause()
        return failures

    def _wait_until_parsed(self, dag_id: str) -> dict[str, Any]:
        """The Dag as this start has parsed it: the database may hold an older one."""
        deadline = time.monotonic() + PARSE_DEADLINE
        while time.monotonic() < deadline:
            dag: dict[str, Any] | None = self._api.find(f"dags/{dag_id}")
            if (
                dag
                and dag["last_parsed_time"]
                and _instant(dag["last_parsed_time"]) > self._started_at
            ):
                return dag
            for error in self._api.get("importErrors")["import_errors"]:
                if _instant(error["timestamp"]) > self._started_at:
                    raise AirflowFailedError(
                        f"{error['filename']}: {error['stack_trace']}", subject=error["filename"]
                    )
            self._pause()
        raise AirflowFailedError(
            f"Airflow has not found {dag_id} in dags/ within {PARSE_DEADLINE:.0f} s", subject=dag_id
        )

    def _fail_interrupted(self, dag_id: str) -> None:
        """Close runs that an earlier stop cut off: Airflow would wait minutes for their tasks.

        Nothing is lost with them; the next run continues from the lake.
        """
        for run in self._api.dag_runs(dag_id):
            if run["state"] == "running" and not self._is_of_this_start(run):
                note = "cut off when Airflow was stopped; the next run continues from the lake"
                self._api.fail_run(dag_id, run["dag_run_id"], note)

    def _runs_of_this_start(self, dag_id: str) -> list[dict[str, Any]]:
        return [run for run in self._api.dag_runs(dag_id) if self._is_of_this_start(run)]

    def _is_of_this_start(self, run: dict[str, Any]) -> bool:
        return bool(run["queued_at"]) and _instant(run["queued_at"]) > self._started_at

    def _failure(self, run: Run) -> str:
        tasks = self._api.task_instances(run.dag_id, run.run_id)
        failed = ", ".join(task["task_id"] for task in tasks if task["state"] == "failed")
        return f"{run.dag_id} failed, by its tasks {failed or '(none)'}: the UI has their logs"

    def _pause(self) -> None:
        self._look()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _is_due(dag: dict[str, Any]) -> bool:
    """Whether the scheduler is about to make a run of this Dag by itself."""
    due_at = dag["next_dagrun_run_after"]
    return due_at is not None and _instant(due_at) <= datetime.now(UTC)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


LOGS = HOME / "parts"
READY_DEADLINE = 600.0
# The scheduler waits for running tasks when asked to stop; a person at Ctrl-C does not.
STOP_PATIENCE = 15.0
LOG_TAIL = 30
BACKGROUND = (
    # Logs are read as files here; a server of them would listen on all interfaces.
    ("scheduler", "--skip-serve-logs"),
    ("dag-processor",),
    ("triggerer", "--skip-serve-logs"),
)
# Its tasks write the lake, which is for others to read if the person's umask says so.
WRITES_THE_LAKE = "scheduler"


class Parts:
    """The parts that run, each with a log of its own."""

    def __init__(self, environment: Mapping[str, str], logs: Path = LOGS) -> None:
        self._environment = dict(environment)
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)

    def start(self, name: str, *words: str) -> None:
        """`airflow <words>`, until `stop`."""
        if self.log(name).exists():
            self.log(name).replace(self._logs / f"{name}.log.1")
        self.log(name).touch(PRIVATE_FILE)
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *words],
                cwd=PROJECT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: Ctrl-C in the terminal reaches only us, and we pass it on.
                start_new_session=True,
                preexec_fn=interrupt_me_with_parent,
                umask=-1 if name == WRITES_THE_LAKE else PRIVATE_UMASK,
            )

    def finish(self, name: str, *words: str) -> None:
        """`airflow <words>` to its end; AirflowFailedError when it fails."""
        self.start(name, *words)
        process = self._running.pop(name)
        if process.wait() != 0:
            raise AirflowFailedError(
                f"`airflow {' '.join(words)}` failed. {self._tail(name)}", subject=name
            )

    def check_alive(self) -> None:
        """AirflowFailedError with the end of its log for a part that has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise AirflowFailedError(
                    f"Airflow's {name} has ended by itself. {self._tail(name)}", subject=name
                )

    def wait(self) -> NoReturn:
        """Until a part ends by itself, or a signal raises."""
        while True:
            self.check_alive()
            time.sleep(1.0)

    def wait_until(self, is_up: Callable[[], bool]) -> None:
        """AirflowFailedError when a part ends before that, or when it takes too long."""

        def look() -> bool:
            self.check_alive()
            return is_up()

        if not wait_until(look, READY_DEADLINE, interval=1.0):
            raise AirflowFailedError(
                f"Airflow was not ready within {READY_DEADLINE:.0f} s: see {self._logs}"
            )

    def stop(self) -> None:
        """All of them, and whatever they have left behind."""
        say("stopping Airflow")
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        parts = self._running.values()
        wait_until(lambda: all(part.poll() is not None for part in parts), STOP_PATIENCE)
        left = end_descendants()
        if left:
            say(f"these processes could not be ended: {left}")

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-LOG_TAIL:]
        return "\n".join([f"The end of {self.log(name)}:", *lines])


def start_servers(parts: Parts, api: AirflowApi, port_of_tasks: int) -> None:
    """The database as this version needs it, and who asks about it: people, and tasks."""
    parts.finish("database", "db", "migrate")
    parts.start("server", "api-server", "--apps", "core")
    parts.start(
        "server-of-tasks", "api-server", "--apps", "execution", "--port", str(port_of_tasks)
    )
    api_of_tasks = AirflowApi(f"http://{HOST}:{port_of_tasks}")
    parts.wait_until(lambda: api_of_tasks.health("/execution/health") is not None)
    parts.wait_until(lambda: are_healthy(api, "metadatabase"))


def start_background(parts: Parts, api: AirflowApi) -> None:
    """What makes runs, reads Dags, and waits for people's answers."""
    for words in BACKGROUND:
        parts.start(words[0], *words)
    parts.wait_until(lambda: are_healthy(api, "scheduler", "dag_processor"))


def are_healthy(api: AirflowApi, *components: str) -> bool:
    health = api.health() or {}
    return all(health.get(each, {}).get("status") == "healthy" for each in components)


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequestedError(BaseException):
    """Ctrl-C, or a signal that asks this process to end."""


def serve(lake: Lake, port: int, *, once: bool) -> int:
    """Run Airflow until Ctrl-C, or with `once` until the first runs have succeeded; the exit code."""
    refuse_taken(port)
    try:
        with stop_signals_raised(), only_one_here():
            return run(lake, port, once=once)
    except (AirflowFailedError, LakeError) as error:
        sys.stderr.write(f"{last_line(error)}\n")
        return 1
    except (URLError, TimeoutError) as error:
        sys.stderr.write(f"error: Airflow's API answers {error}: its logs are in {LOGS}\n")
        return 1


def run(lake: Lake, port: int, *, once: bool) -> int:
    """Exit code: 130 when stopped before the streams had run, as for any interrupted command.

    A stream that fails does not end the serving: the UI is where to look into it.
    """
    code = 128 + signal.SIGINT
    try:
        make_sample_data(lake)
        with airflow(lake, port) as (parts, api):
            code = run_streams(parts, api, lake)
            if not once:
                say(f"\nserving {api.url} until Ctrl-C")
                parts.wait()
    except StopRequestedError:
        pass
    return code


def make_sample_data(lake: Lake) -> None:
    """Generate sample input when nothing has landed for any source."""
    if any(landed_files(lake, source.name) for source in all_sources()):
        return
    say(f"landing/ is empty: generating sample input in {lake.root}/landing")
    options = Options(start=sample_start())
    for line in land_samples(lake, all_sources(), options):
        say(line)


@contextmanager
def only_one_here() -> Iterator[None]:
    """Airflow's database serves one Airflow: a second would end the first one's runs."""
    make_private_home()
    lock = HOME / "make-run.lock"
    lock.touch(PRIVATE_FILE)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                "`make run` is serving already from this folder: stop it, or use a second clone",
                code="already_running",
            ) from None
        yield


@contextmanager
def stop_signals_raised() -> Iterator[None]:
    """Turn the first request to stop into StopRequestedError; further ones change nothing.

    Set outright: a shell starts background jobs with SIGINT ignored, and Airflow inherits it.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        heed_no_more_signals()
        raise StopRequestedError

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    yield


def heed_no_more_signals() -> None:
    """Once the end has begun, a second Ctrl-C must not cut it short: parts would be left."""
    for number in STOP_SIGNALS:
        signal.signal(number, _heed_no_more)


def _heed_no_more(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which a process started now would inherit."""


@contextmanager
def airflow(lake: Lake, port: int) -> Iterator[tuple[Parts, AirflowApi]]:
    """Airflow while the body runs; no process of it is left afterwards."""
    adopt_orphans()
    make_private_home()
    make_password()
    port_of_tasks = any_free_port()
    parts = Parts(airflow_environment(os.environ, lake, port, port_of_tasks=port_of_tasks))
    api = AirflowApi(f"http://{HOST}:{port}")
    say(f"starting Airflow on port {port} (logs: {LOGS})")
    try:
        start_servers(parts, api, port_of_tasks)
        api.log_in(USER, password())
        show_places(lake, api)
        yield parts, api
    finally:
        heed_no_more_signals()
        parts.stop()


def run_streams(parts: Parts, api: AirflowApi, lake: Lake) -> int:
    """Run each stream's Dag once and show what its table holds then; 1 when one has failed."""
    started_at, streams = datetime.now(UTC), all_streams()
    start_background(parts, api)
    say("running each stream once")
    first_runs = FirstRuns(api, started_at, say, look=parts.check_alive)
    runs = [first_runs.start(f"stream_{stream.name}") for stream in streams]
    failures = first_runs.wait([run for run in runs if run is not None])
    for stream in streams:
        show_result(lake, stream.name)
        if report := run_report(lake, stream, since=started_at, now=datetime.now(UTC)):
            say(report)
    for failure in failures:
        sys.stderr.write(printable(f"\nerror: {failure}\n"))
    return 1 if failures else 0


def show_places(lake: Lake, api: AirflowApi) -> None:
    """As soon as Airflow is up: who waits for the streams may watch them there."""
    say("")
    say(f"Airflow   {api.url}   user {USER}, password {password()}")
    say(f"lake      {lake.root}")
    say(f"logs      {HOME / 'logs'}, {LOGS}")
    say("")
