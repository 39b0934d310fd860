"""Airflow on this machine, from one command: `make run`.

Starts Airflow with everything it writes in the project's .airflow, says where it is, runs each
stream once, shows the results, and serves until Ctrl-C. What it started ends with it.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from urllib.error import URLError

from include.airflow.api import AirflowApi, AirflowFailedError
from include.airflow.environment import (
    HOME,
    HOST,
    PRIVATE_FILE,
    USER,
    airflow_environment,
    any_free_port,
    make_password,
    make_private_home,
    password,
    refuse_taken,
)
from include.airflow.first_runs import FirstRuns
from include.airflow.parts import LOGS, Parts, start_background, start_servers
from include.lake.errors import LakeError, last_line
from include.lake.lease import adopt_orphans
from include.lake.paths import Lake
from include.landing.landing_folder import landed_files
from include.observe.stream_line import run_report
from include.registry import all_sources, all_streams
from include.run_local import show_result
from include.sample.sample_data import Options, land_samples, sample_start
from include.settings import SettingsError
from include.spark.local_jobs import say
from include.text_table import printable

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
