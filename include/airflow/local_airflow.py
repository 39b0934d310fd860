"""Airflow on this machine, from one command: `make run`.

Its parts are child processes, started in the order in which they need each other. `airflow standalone` starts
all at once, so that the first tasks find no API; and its one server for people and tasks stops both
now and then on SQLite, as its event loop waits for the database that a task's request holds.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import quote

import httpx
import psutil

from include.airflow.environment import (
    HOME,
    HOST,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    PRIVATE_UMASK,
    USER,
    admin_password,
    airflow_environment,
    any_free_port,
    make_private_home,
    refuse_taken,
)
from include.ingest.landed_files import landed_files
from include.lake.errors import SettingsError, StatefulError
from include.lake.lease import wait_until
from include.lake.paths import Lake
from include.observe.stream_line import run_report
from include.registry import all_sources, all_streams, ancestors_of, in_order
from include.run_local import show_result
from include.sample.sample_data import Options, land_samples, sample_start
from include.settings import PROJECT
from include.spark.submit import say
from include.text_table import printable

ATTEMPTS = 3


class AirflowFailedError(StatefulError):
    """Raised when a part of Airflow ended or never answered, with the end of its log."""

    code = "airflow_failed"
    exit_code = 1


class AirflowApi:
    """A client of Airflow's REST API; the `airflow` command would take 5 s of CPU for each call."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Not by the machine's proxy.
        self.client = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def health(self, path: str = "/api/v2/monitor/health") -> dict[str, Any] | None:
        """The state of each component; None while the server does not answer."""
        try:
            answer: dict[str, Any] = self.client.get(path).raise_for_status().json()
        except httpx.HTTPError:
            return None
        return answer

    def log_in(self, username: str, password: str) -> None:
        body = {"username": username, "password": password}
        answer = self.call("POST", "/auth/token", json=body)
        self.client.headers["Authorization"] = f"Bearer {answer['access_token']}"

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """The Dag; None while Airflow does not know it."""
        found: dict[str, Any] | None = self.call("GET", f"/api/v2/dags/{dag_id}")
        return found

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The newest runs of a Dag, backfill runs left out."""
        newest = {"order_by": "-run_after", "limit": 50}
        answer = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns", params=newest)
        return [run for run in answer["dag_runs"] if run["run_type"] != "backfill"]

    def trigger(self, dag_id: str, run_id: str) -> str:
        """Start a run now, and return its id."""
        body = {"logical_date": None, "dag_run_id": run_id}
        run = self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)
        return str(run["dag_run_id"])

    def fail_run(self, dag_id: str, run_id: str, note: str) -> None:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}"
        self.call("PATCH", path, json={"state": "failed", "note": note})

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")
        return run

    def call(self, method: str, path: str, **content: Any) -> Any:
        """The answer as JSON, None for 404; a failed call is repeated."""
        error: httpx.HTTPError | None = None
        for _ in range(ATTEMPTS):
            try:
                answer = self.client.request(method, path, **content)
                if answer.status_code == HTTPStatus.NOT_FOUND:
                    return None
                return answer.raise_for_status().json()
            except httpx.HTTPError as failed:
                error = failed
        raise AirflowFailedError(f"Airflow's API, at {path}: {error}") from error


SECONDS_BETWEEN_LOOKS = 1.0
PARSE_DEADLINE = 300.0
# For the scheduler to make a run that is due.
DUE_DEADLINE = 120.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of orphans below it from now on."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def interrupt_me_with_parent() -> None:
    """Ask for SIGINT when the parent is gone; for a child, between fork and exec."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def descendants() -> list[psutil.Process]:
    """The live processes below this one."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def end_descendants(patience: float = 5.0) -> list[int]:
    """End all processes below this one, and return the ids of those that could not be ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in descendants():
            with suppress(psutil.NoSuchProcess):  # it may have ended since it was listed
                process.send_signal(number)
        if wait_until(lambda: not descendants(), patience):
            break
    return [process.pid for process in descendants()]


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def looking(look: Callable[[], None], condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition for at most `seconds`; `look` is called before each test of it, and may raise."""

    def is_met() -> bool:
        look()
        return condition()

    return wait_until(is_met, seconds, SECONDS_BETWEEN_LOOKS)


class FirstRuns:
    """The runs that `make run` waits for, one of each Dag: a due one, or one triggered here."""

    def __init__(self, api: AirflowApi, started_at: datetime, look: Callable[[], None]) -> None:
        self._api = api
        self._started_at = started_at
        self._look = look

    def start(self, dag_id: str, *, is_behind: bool = False) -> str | None:
        """Return the id of the run of `dag_id` to wait for; None when the Dag is paused.

        Of a stream behind others it is a new one: a due run may have come before theirs had ended.
        """
        if not looking(self._look, lambda: self._is_parsed(dag_id), PARSE_DEADLINE):
            raise AirflowFailedError(
                f"Airflow has not found {dag_id} in dags/ within {PARSE_DEADLINE:.0f} s: see {LOGS}",
                subject=dag_id,
            )
        dag = self._api.dag(dag_id) or {}
        if dag["is_paused"]:
            say(f"{dag_id}: paused in Airflow, not run")
            return None
        self._fail_interrupted(dag_id)
        due_at = dag["next_dagrun_run_after"]
        is_due = due_at is not None and datetime.fromisoformat(due_at) <= datetime.now(UTC)
        if is_due and not is_behind:
            looking(self._look, lambda: bool(self._runs(dag_id)), DUE_DEADLINE)
        runs = [] if is_behind else self._runs(dag_id)
        say(f"{_name(dag_id)}: running")
        # The same name in all Dags, as the scheduler's have: those of a source share a JVM.
        name = f"manual__{self._started_at.isoformat()}"
        return str(runs[0]["dag_run_id"]) if runs else self._api.trigger(dag_id, name)

    def wait(self, runs: Mapping[str, str]) -> list[str]:
        """Wait until the run of each Dag has ended, and return what failed."""
        waiting = dict(runs)
        failures = []
        while waiting:
            for dag_id, run_id in list(waiting.items()):
                state = self._api.dag_run(dag_id, run_id)["state"]
                if state in ("success", "failed"):
                    del waiting[dag_id]
                    say(f"{_name(dag_id)}: {'done' if state == 'success' else 'failed'}")
                if state == "failed":
                    failures.append(f"{dag_id} failed: the UI has the logs of its tasks")
            if waiting:
                self._look()
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return failures

    def _is_parsed(self, dag_id: str) -> bool:
        """True if parsed since this start: the database may have the Dag of an older one."""
        parsed_at = (self._api.dag(dag_id) or {}).get("last_parsed_time")
        return bool(parsed_at) and self._is_since(str(parsed_at))

    def _fail_interrupted(self, dag_id: str) -> None:
        """Fail runs that an earlier stop cut off: Airflow would wait minutes for their tasks."""
        for run in self._runs(dag_id, are_new=False):
            if run["state"] == "running":
                note = "cut off when Airflow was stopped; the next run continues from the lake"
                self._api.fail_run(dag_id, run["dag_run_id"], note)

    def _runs(self, dag_id: str, *, are_new: bool = True) -> list[dict[str, Any]]:
        """The runs that were queued since this start, or before it."""
        return [
            run
            for run in self._api.dag_runs(dag_id)
            if are_new == (bool(run["queued_at"]) and self._is_since(run["queued_at"]))
        ]

    def _is_since(self, at: str) -> bool:
        return datetime.fromisoformat(at) > self._started_at


def _name(dag_id: str) -> str:
    return dag_id.removeprefix("stream_")


LOGS = HOME / "parts"
READY_DEADLINE = 600.0
# The scheduler waits for running tasks when asked to stop; a person at Ctrl-C does not.
STOP_PATIENCE = 15.0
LOG_TAIL = 30
# Its tasks write the lake, which is for others to read if the person's umask says so.
WRITES_THE_LAKE = "scheduler"


class Parts:
    """The running parts of Airflow, each with its own log."""

    def __init__(self, environment: Mapping[str, str], logs: Path = LOGS) -> None:
        self._environment = dict(environment)
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)

    def start(self, name: str, *words: str) -> None:
        """Start `airflow <words>`, which runs until `stop`."""
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
        """Run `airflow <words>` to its end; raises AirflowFailedError when it fails."""
        self.start(name, *words)
        process = self._running.pop(name)
        if process.wait() != 0:
            raise AirflowFailedError(
                f"`airflow {' '.join(words)}` failed. {self._tail(name)}", subject=name
            )

    def check_alive(self) -> None:
        """Raise AirflowFailedError, with the end of its log, for a part that has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise AirflowFailedError(
                    f"Airflow's {name} has ended by itself. {self._tail(name)}", subject=name
                )

    def wait(self) -> NoReturn:
        """Wait until a part ends by itself, or a signal raises."""
        while True:
            self.check_alive()
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def wait_until(self, is_up: Callable[[], bool]) -> None:
        """Wait until `is_up`; raises AirflowFailedError when a part ends, or READY_DEADLINE has passed."""

        if not looking(self.check_alive, is_up, READY_DEADLINE):
            raise AirflowFailedError(
                f"Airflow was not ready within {READY_DEADLINE:.0f} s: see {self._logs}"
            )

    def stop(self) -> None:
        """Stop all parts, and end the processes that they have left."""
        say("stopping Airflow")
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        parts = self._running.values()
        wait_until(lambda: all(part.poll() is not None for part in parts), STOP_PATIENCE)
        if left := end_descendants():
            say(f"these processes could not be ended: {left}")

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-LOG_TAIL:]
        return "\n".join([f"The end of {self.log(name)}:", *lines])


def start_servers(parts: Parts, api: AirflowApi, port_of_tasks: int) -> None:
    """Migrate the database, and start the servers: one for people, one for tasks."""
    parts.finish("database", "db", "migrate")
    parts.start("server", "api-server", "--apps", "core")
    parts.start(
        "server-of-tasks", "api-server", "--apps", "execution", "--port", str(port_of_tasks)
    )
    api_of_tasks = AirflowApi(f"http://{HOST}:{port_of_tasks}")
    parts.wait_until(lambda: api_of_tasks.health("/execution/health") is not None)
    parts.wait_until(lambda: are_healthy(api, "metadatabase"))


def start_background(parts: Parts, api: AirflowApi) -> None:
    """Start scheduler, dag-processor and triggerer."""
    # A server of logs would listen on all interfaces; here they are read as files.
    parts.start("scheduler", "scheduler", "--skip-serve-logs")
    parts.start("dag-processor", "dag-processor")
    parts.start("triggerer", "triggerer", "--skip-serve-logs")
    parts.wait_until(lambda: are_healthy(api, "scheduler", "dag_processor", "triggerer"))


def are_healthy(api: AirflowApi, *components: str) -> bool:
    health = api.health() or {}
    return all(health.get(each, {}).get("status") == "healthy" for each in components)


def serve(lake: Lake, port: int, *, once: bool) -> int:
    """Run Airflow until Ctrl-C, or with `once` until the first runs have ended; returns the exit code."""
    refuse_taken(port)
    code = 128 + signal.SIGINT
    heed_stop_signals(signal.default_int_handler)
    with suppress(KeyboardInterrupt), only_one_here():
        make_sample_data(lake)
        with airflow(lake, port) as (parts, api):
            code = run_streams(parts, api, lake)
            if not once:
                say(f"\nserving {api.url} until Ctrl-C")
                parts.wait()
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
    """Hold the lock of `make run`: a second Airflow on one database would end the first one's runs."""
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


def heed_stop_signals(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Set the handler of SIGINT, SIGTERM and SIGHUP: a shell's background jobs ignore SIGINT, which Airflow would inherit."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


@contextmanager
def airflow(lake: Lake, port: int) -> Iterator[tuple[Parts, AirflowApi]]:
    """Airflow while the body runs; no process of it is left afterwards."""
    adopt_orphans()
    make_private_home()
    password = admin_password()
    port_of_tasks = any_free_port()
    parts = Parts(airflow_environment(os.environ, lake, port, port_of_tasks=port_of_tasks))
    api = AirflowApi(f"http://{HOST}:{port}")
    say(f"starting Airflow on port {port} (logs: {LOGS})")
    try:
        start_servers(parts, api, port_of_tasks)
        api.log_in(USER, password)
        # As soon as Airflow is up: who waits for the streams may watch them there.
        say(f"\nAirflow   {api.url}   user {USER}, password {password}")
        say(f"lake      {lake.root}")
        say(f"logs      {HOME / 'logs'}, {LOGS}\n")
        yield parts, api
    finally:
        # A second Ctrl-C must not cut the end short: parts would be left. Not SIG_IGN, which a
        # process started now would inherit.
        heed_stop_signals(lambda number, frame: None)
        parts.stop()


def run_streams(parts: Parts, api: AirflowApi, lake: Lake) -> int:
    """Run each stream's Dag once and show its table; returns 1 when one has failed."""
    started_at, streams = datetime.now(UTC), all_streams()
    start_background(parts, api)
    say("running each stream once")
    first_runs = FirstRuns(api, started_at, look=parts.check_alive)
    failures = []
    names = in_order(stream.name for stream in streams)
    for before, level in groupby(names, lambda name: len(ancestors_of(name))):
        dags = [f"stream_{name}" for name in level]
        runs = {dag_id: first_runs.start(dag_id, is_behind=before > 0) for dag_id in dags}
        failures += first_runs.wait({dag_id: run for dag_id, run in runs.items() if run})
    for stream in streams:
        show_result(lake, stream.name)
        if report := run_report(lake, stream, since=started_at, now=datetime.now(UTC)):
            say(report)
    for failure in failures:
        sys.stderr.write(printable(f"\nerror: {failure}\n"))
    return 1 if failures else 0
