"""Airflow on this machine, from one command: `make run`.

    python -m include.local_airflow [--once]       (LAKE and PORT come from the environment)

Starts `airflow standalone` with everything it writes in the project's .airflow, runs each
stream once, shows the results, and serves until Ctrl-C. What it started ends with it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from include.airflow_api import AirflowApi
from include.first_runs import FirstRuns, RunFailedError
from include.lake import Lake, LakeError
from include.pools import pools
from include.process_tree import (
    adopt_orphans,
    end_descendants,
    interrupt_me_with_parent,
    wait_until,
)
from include.run_local import absolute_lake, has_landing_files, say, show_result
from include.spark_submit import default_master
from include.streams import PROJECT, STREAMS, SettingsError, default_lake

HOST = "127.0.0.1"
HOME = PROJECT / ".airflow"
LOG = HOME / "standalone.log"
PASSWORDS = HOME / "passwords.json"
USER = "admin"
READY_DEADLINE = 600.0
# The scheduler waits for running tasks when asked to stop; a person at Ctrl-C does not.
STOP_PATIENCE = 15.0
LOG_TAIL = 30
COMPONENTS = ("metadatabase", "scheduler", "dag_processor")


class AirflowDiedError(Exception):
    """Airflow ended, or never answered."""


class StopRequestedError(BaseException):
    """Ctrl-C, or a signal that asks this process to end."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description="Run Airflow here, with every stream.")
    parser.add_argument("--once", action="store_true", help="end after the first successful runs")
    args = parser.parse_args(argv)
    try:
        port = free_port_or_error(os.environ.get("PORT") or "8080")
        lake = prepare_lake(absolute_lake(default_lake()))
    except (SettingsError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    try:
        with stop_signals_raised():
            return run(lake, port, once=args.once)
    except (AirflowDiedError, RunFailedError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def run(lake: Lake, port: int, *, once: bool) -> int:
    """Exit code: 130 when stopped before the streams had run, as for any interrupted command."""
    shown = False
    try:
        make_sample_data(lake)
        with airflow(lake, port) as process:
            run_streams(process, port, lake)
            shown = True
            show_places(lake, port)
            if not once:
                say("serving until Ctrl-C")
                process.wait()
                raise AirflowDiedError(f"Airflow has ended:\n{log_tail()}")
    except StopRequestedError:
        return 0 if shown else 128 + signal.SIGINT
    return 0


def free_port_or_error(text: str) -> int:
    """The port in `text`; SettingsError when it is none, or taken."""
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise SettingsError(f"PORT={text} is not a port number")
    with socket.socket() as probe:
        # As the server does: a port that is only waiting to be reused is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, int(text)))
        except OSError as error:
            raise SettingsError(
                f"port {text} cannot be used ({error.strerror}): stop what holds it, "
                "or give another with PORT="
            ) from None
    return int(text)


def prepare_lake(root: str) -> Lake:
    """The lake at `root`; a local folder is made when it is not there."""
    lake = Lake(root)
    if "://" not in root:
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LakeError(f"the lake {root} cannot be made: {error.strerror}") from error
    return lake


def make_sample_data(lake: Lake) -> None:
    """Generate sample input when nothing at all has landed."""
    if has_landing_files(lake):
        return
    say(f"landing/ is empty: generating sample input in {lake.root}/landing")
    command = [sys.executable, "-m", "include.sample_data", "--lake", lake.root]
    subprocess.run(command, cwd=PROJECT, check=True)


@contextmanager
def stop_signals_raised() -> Iterator[None]:
    """Turn the first request to stop into StopRequestedError; further ones change nothing.

    Set outright: a shell starts background jobs with SIGINT ignored, and Airflow inherits it.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, _heed_no_more)
        raise StopRequestedError

    for number in numbers:
        signal.signal(number, stop)
    yield


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
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, because at SIGTERM standalone leaves its parts behind; then whatever is left."""
    say("stopping Airflow")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: process.poll() is not None, STOP_PATIENCE)
    left = end_descendants()
    if left:
        say(f"these processes could not be ended: {left}")


def airflow_environment(inherited: Mapping[str, str], lake: Lake, port: int) -> dict[str, str]:
    """All that Airflow is told: nothing is read from the user's home folder."""
    url = f"http://{HOST}:{port}"
    return {
        **inherited,
        "LAKE": lake.root,
        # `standalone` starts its parts as `airflow`; the jobs find spark-submit beside it.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}",
        "PYTHONPATH": str(PROJECT),
        # The tasks talk to the API on this machine: not through the machine's proxy.
        "NO_PROXY": HOST,
        "no_proxy": HOST,
        "AIRFLOW_HOME": str(HOME),
        # JSON, because the URL form cannot say both local[2] and spark://host:7077.
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": default_master()}),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # Tasks at once, of any kind: so at most two Spark JVMs.
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(PASSWORDS),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "15",
        # Fixed by default, so a second Airflow on this machine could not serve its logs.
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(any_free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(any_free_port()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "SCARF_ANALYTICS": "false",
    }


def any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def run_streams(process: subprocess.Popen[bytes], port: int, lake: Lake) -> None:
    """Run each stream's Dag once and show what its table holds then."""
    started_at = datetime.now(UTC)
    api = AirflowApi(f"http://{HOST}:{port}")

    def check_alive() -> None:
        if process.poll() is not None:
            raise AirflowDiedError(f"Airflow has ended by itself. The end of {LOG}:\n{log_tail()}")

    wait_until_ready(api, check_alive)
    api.log_in(USER, password())
    for pool in pools(STREAMS):
        api.ensure_pool(pool, slots=1)
    say("Airflow is ready: running the streams")
    first_runs = FirstRuns(api, started_at, say, check_alive)
    runs = [first_runs.start(f"stream_{stream.name}") for stream in STREAMS]
    first_runs.wait([run for run in runs if run is not None])
    for stream in STREAMS:
        show_result(lake, stream.name)


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


def password() -> str:
    """The password that Airflow generated at its first start."""
    return str(json.loads(PASSWORDS.read_text())[USER])


def log_tail() -> str:
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-LOG_TAIL:])


def show_places(lake: Lake, port: int) -> None:
    say("")
    say(f"Airflow   http://{HOST}:{port}   user {USER}, password {password()}")
    say(f"lake      {lake.root}")
    say(f"logs      {HOME / 'logs'}, {LOG}")


if __name__ == "__main__":
    sys.exit(main())
