"""Airflow on this machine, from one command: `make run`.

Starts `airflow standalone` with everything it writes in the project's .airflow, says where it
is, runs each stream once, shows the results, and serves until Ctrl-C. What it started ends with
it.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from urllib.error import URLError

from rich.console import Console

from include.airflow.api import AirflowApi
from include.airflow.environment import (
    HOME,
    HOST,
    USER,
    airflow_environment,
    free_port_or_error,
    password,
)
from include.airflow.first_runs import DagNotReadError, FirstRuns
from include.airflow.progress import shown_progress
from include.lake.paths import Lake, LakeError
from include.lake.process_tree import (
    adopt_orphans,
    end_descendants,
    interrupt_me_with_parent,
    wait_until,
)
from include.registry import all_sources, all_streams
from include.run_local import has_landing_files, show_result
from include.sample.sample_data import Options, land_samples, last_full_day
from include.settings import PROJECT, SettingsError
from include.spark.local_jobs import say

LOG = HOME / "standalone.log"
READY_DEADLINE = 600.0
# The scheduler waits for running tasks when asked to stop; a person at Ctrl-C does not.
STOP_PATIENCE = 15.0
LOG_TAIL = 30
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COMPONENTS = ("metadatabase", "scheduler", "dag_processor")


class AirflowDiedError(Exception):
    """Airflow ended, or never answered."""


class StopRequestedError(BaseException):
    """Ctrl-C, or a signal that asks this process to end."""


def serve(lake: Lake, port: str, *, once: bool) -> int:
    """Run Airflow until Ctrl-C, or with `once` until the first runs have succeeded; the exit code."""
    free = free_port_or_error(port)
    try:
        with stop_signals_raised(), only_one_here():
            return run(lake, free, once=once)
    except (AirflowDiedError, DagNotReadError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except (URLError, TimeoutError) as error:
        sys.stderr.write(f"error: Airflow's API answers {error}. The end of {LOG}:\n{log_tail()}\n")
        return 1


def run(lake: Lake, port: int, *, once: bool) -> int:
    """Exit code: 130 when stopped before the streams had run, as for any interrupted command.

    A stream that fails does not end the serving: the UI is where to look into it.
    """
    code = 128 + signal.SIGINT
    try:
        make_sample_data(lake)
        with airflow(lake, port) as process:
            code = run_streams(process, port, lake)
            if not once:
                say(f"\nserving {address(port)} until Ctrl-C")
                process.wait()
                raise AirflowDiedError(f"Airflow has ended by itself:\n{log_tail()}")
    except StopRequestedError:
        pass
    return code


def make_sample_data(lake: Lake) -> None:
    """Generate sample input when nothing at all has landed."""
    if has_landing_files(lake):
        return
    say(f"landing/ is empty: generating sample input in {lake.root}/landing")
    options = Options(start=last_full_day(datetime.now(UTC)))
    for line in land_samples(lake, all_sources(), options):
        say(line)


@contextmanager
def only_one_here() -> Iterator[None]:
    """Airflow's database serves one Airflow: a second would end the first one's runs."""
    HOME.mkdir(exist_ok=True)
    with (HOME / "make-run.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                "`make run` is serving already from this folder: stop it, or use a second clone"
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
def airflow(lake: Lake, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Airflow while the body runs; no process of it is left afterwards."""
    adopt_orphans()
    HOME.mkdir(exist_ok=True)
    if LOG.exists():
        LOG.replace(LOG.with_suffix(".log.1"))
    say(f"starting Airflow on port {port} (log: {LOG})")
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", "standalone"],
            cwd=PROJECT,
            env=airflow_environment(os.environ, lake, port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Its own session: Ctrl-C in the terminal reaches only us, and we pass it on.
            start_new_session=True,
            preexec_fn=interrupt_me_with_parent,
        )
    try:
        yield process
    finally:
        heed_no_more_signals()
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, because at SIGTERM standalone leaves its parts behind; then whatever is left."""
    say("stopping Airflow")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: process.poll() is not None, STOP_PATIENCE)
    left = end_descendants()
    if left:
        say(f"these processes could not be ended: {left}")


def run_streams(process: subprocess.Popen[bytes], port: int, lake: Lake) -> int:
    """Run each stream's Dag once and show what its table holds then; 1 when one has failed."""
    started_at = datetime.now(UTC)
    api, console = AirflowApi(address(port)), Console()

    def check_alive() -> None:
        if process.poll() is not None:
            raise AirflowDiedError(f"Airflow has ended by itself. The end of {LOG}:\n{log_tail()}")

    with console.status("Airflow is starting"):
        wait_until_ready(api, check_alive)
    api.log_in(USER, password())
    show_places(lake, port)
    say("running each stream once")
    with shown_progress(console, say) as shown:
        first_runs = FirstRuns(api, started_at, shown, check_alive)
        runs = [first_runs.start(f"stream_{stream.name}") for stream in all_streams()]
        failures = first_runs.wait([run for run in runs if run is not None])
    for stream in all_streams():
        show_result(lake, stream.name)
    for failure in failures:
        sys.stderr.write(f"\nerror: {failure}\n")
    return 1 if failures else 0


def wait_until_ready(api: AirflowApi, check_alive: Callable[[], None]) -> None:
    def is_ready() -> bool:
        check_alive()
        health = api.health()
        return health is not None and all(
            health[component]["status"] == "healthy" for component in COMPONENTS
        )

    if not wait_until(is_ready, READY_DEADLINE, interval=1.0):
        raise AirflowDiedError(
            f"Airflow was not ready within {READY_DEADLINE:.0f} s. The end of {LOG}:\n{log_tail()}"
        )


def log_tail() -> str:
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-LOG_TAIL:])


def address(port: int) -> str:
    return f"http://{HOST}:{port}"


def show_places(lake: Lake, port: int) -> None:
    """As soon as Airflow is up: who waits for the streams may watch them there."""
    say("")
    say(f"Airflow   {address(port)}   user {USER}, password {password()}")
    say(f"lake      {lake.root}")
    say(f"logs      {HOME / 'logs'}, {LOG}")
    say("")
