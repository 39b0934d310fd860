"""The environment of the embedded Airflow, which writes to .airflow only, whatever HOME is."""

import json
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, sessionmaker

from include.lake.errors import SettingsError
from include.lake.paths import Lake
from include.settings import PROJECT
from include.spark.submit import default_master

HOST = "127.0.0.1"
HOME = PROJECT / ".airflow"
PASSWORDS = HOME / "passwords.json"
PLUGINS = PROJECT / "include" / "airflow" / "plugins"
USER = "admin"
PASSWORD_BYTES = 15
# Airflow's folders and files are its owner's alone.
PRIVATE_FOLDER, PRIVATE_FILE, PRIVATE_UMASK = 0o700, 0o600, 0o077


def airflow_environment(
    inherited: Mapping[str, str], lake: Lake, port: int, port_of_tasks: int
) -> dict[str, str]:
    """The environment of Airflow's processes: nothing is read from the user's home folder."""
    url = f"http://{HOST}:{port}"
    return {
        **inherited,
        "LAKE": lake.root,
        # The jobs find spark-submit there.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}",
        "PYTHONPATH": str(PROJECT),
        # The tasks talk to the API on this machine: not through the machine's proxy.
        **{name: f"{inherited.get(name, '')},{HOST}" for name in ("NO_PROXY", "no_proxy")},
        "AIRFLOW_HOME": str(HOME),
        # JSON takes a master as it is; a URL would need the brackets of local[2] quoted.
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": default_master()}),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # Tasks at once, of any kind: so at most as many Spark JVMs, of a gigabyte and more each.
        "AIRFLOW__CORE__PARALLELISM": inherited.get("PARALLELISM") or "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{port_of_tasks}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(PASSWORDS),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "include.airflow.environment.CONNECT_ARGS",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": "include.airflow.environment.CONNECT_ARGS",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_SESSION_MAKER": "include.airflow.environment.session_maker",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "15",
        # By default a task's log is also its group's to write.
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FOLDER_PERMISSIONS": oct(PRIVATE_FOLDER),
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FILE_PERMISSIONS": oct(PRIVATE_FILE),
    }


def any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def refuse_taken(port: int) -> None:
    """Raise SettingsError for a port that is taken."""
    with socket.socket() as probe:
        # As the server does: a port that is only waiting to be reused is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise SettingsError(
                f"port {port} cannot be used ({error.strerror}): stop what holds it, "
                "or give another with PORT=",
                subject="PORT",
            ) from None


def make_private_home() -> None:
    """Make Airflow's folder, closed to other users."""
    HOME.mkdir(exist_ok=True)
    HOME.chmod(PRIVATE_FOLDER)


def admin_password() -> str:
    """The admin's password, from the file that Airflow reads; made here, as Airflow would log its own."""
    known = passwords_in(PASSWORDS)
    if USER not in known:
        known[USER] = secrets.token_urlsafe(PASSWORD_BYTES)
        write_passwords(PASSWORDS, known)
    return known[USER]


def passwords_in(file: Path) -> dict[str, str]:
    """The passwords in the file, by user."""
    passwords: dict[str, str] = json.loads(file.read_text()) if file.is_file() else {}
    return passwords


def write_passwords(file: Path, passwords: Mapping[str, str]) -> None:
    """Replace the file at once, as the api-server may be reading it; only the owner can read it."""
    with NamedTemporaryFile("w", dir=file.parent, delete=False) as partial:
        json.dump(passwords, partial)
    Path(partial.name).replace(file)


# Longer than any transaction of Airflow's on a slow machine; the driver's own 5 s are not.
CONNECT_ARGS: dict[str, Any] = {"timeout": 60.0}


def session_maker(engine: Engine) -> sessionmaker[Session]:
    """Airflow's own sessions, on an engine whose savepoints wait for the write lock."""
    event.listen(engine, "savepoint", begin_to_write)
    return sessionmaker(engine, autoflush=False, expire_on_commit=False)


def begin_to_write(connection: Connection, name: str | None) -> None:
    """Take SQLite's write lock before the savepoint reads: a backfill's runs are all made, or none."""
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        driver.execute("BEGIN IMMEDIATE")
