"""What must be there before Airflow starts: the service `airflow-init` of docker-compose.yaml.

    python -m include.docker.prepare_airflow [--wait SECONDS]

Settings come from the environment, and are checked before anything is changed. All of it can be
repeated, and is, at each `docker compose up`.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from cryptography.fernet import Fernet
from sqlalchemy import Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from include.airflow.environment import checked_parallelism
from include.docker.prepare_lake import prepare_lake
from include.lake.paths import LakeError
from include.settings import SettingsError
from include.spark.local_jobs import say
from include.spark.master import checked_master

DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
CONNECTION = "AIRFLOW_CONN_SPARK_DEFAULT"
FERNET_KEY = "AIRFLOW__CORE__FERNET_KEY"
USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
PASSWORDS_FILE = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
PARALLELISM = "AIRFLOW__CORE__PARALLELISM"
PASSWORD = "AIRFLOW_ADMIN_PASSWORD"
POSTGRES = ("postgresql", "postgresql+psycopg2")
WAIT_S = 120.0
CONNECT_S = 10
RETRY_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description="Prepare database, login and lake for Airflow.")
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT_S,
        metavar="SECONDS",
        help="for the database: %(default)s",
    )
    args = parser.parse_args(argv)
    try:
        prepare(os.environ, args.wait)
    except (SettingsError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    say("Airflow can start")
    return 0


def prepare(environment: Mapping[str, str], wait_s: float) -> None:
    """All steps; SettingsError or LakeError, naming a setting, at the first that cannot be done."""
    check_connection(environment)
    check_fernet_key(environment)
    checked_parallelism(setting(environment, PARALLELISM))
    prepare_lake(setting(environment, "LAKE"))
    write_password(environment)
    wait_for_database(setting(environment, DATABASE), wait_s)
    migrate_database()


def setting(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise SettingsError(f"{name} is not set: docker-compose.yaml gives it to this step")
    return value


def check_connection(environment: Mapping[str, str]) -> None:
    """That jobs have a master. Airflow says nothing: a missing connection means `yarn` to it."""
    master = checked_master(setting(environment, "SPARK_MASTER"))
    text = setting(environment, CONNECTION)
    try:
        connection = json.loads(text)
    except ValueError:
        connection = None
    host = connection.get("host") if isinstance(connection, dict) else None
    if host != master:
        wanted = json.dumps({"conn_type": "spark", "host": master})
        raise SettingsError(f"{CONNECTION} must name the host that SPARK_MASTER does: {wanted}")


def check_fernet_key(environment: Mapping[str, str]) -> None:
    """Airflow itself finds out when it first encrypts a connection, months later."""
    key = setting(environment, FERNET_KEY)
    try:
        Fernet(key)
    except ValueError as error:
        raise SettingsError(
            f"{FERNET_KEY} is no Fernet key ({error}): take the AIRFLOW_FERNET_KEY of a file that "
            "`make compose-env` wrote"
        ) from error


def write_password(environment: Mapping[str, str]) -> None:
    """Put the first user's password where Airflow looks for it, in place of one it would make up."""
    user = setting(environment, USERS).partition(":")[0]
    password = setting(environment, PASSWORD)
    file = Path(setting(environment, PASSWORDS_FILE))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(passwords_in(file) | {user: password}))
    except OSError as error:
        raise SettingsError(f"{PASSWORDS_FILE}={file} cannot be written: {error}") from error


def passwords_in(file: Path) -> dict[str, Any]:
    """Those of other users, which Airflow has made up. What is no JSON, it could not use either."""
    try:
        passwords = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return passwords if isinstance(passwords, dict) else {}


def replace_file(file: Path, text: str) -> None:
    """All or nothing, as the api-server may be reading; only the owner reads it."""
    with NamedTemporaryFile("w", dir=file.parent, delete=False) as partial:
        partial.write(text)
    Path(partial.name).replace(file)


def wait_for_database(url: str, wait_s: float) -> None:
    """Return when the database takes a connection; SettingsError when it has not in `wait_s`."""
    engine = engine_of(url)
    shown = f"{engine.url.render_as_string(hide_password=True)} ({DATABASE})"
    deadline = time.monotonic() + wait_s
    said = False
    while (reason := why_not_connected(engine)) is not None:
        if time.monotonic() >= deadline:
            raise SettingsError(
                f"the database {shown} did not answer within {wait_s:.0f} s: {reason}"
            )
        if not said:
            say(f"waiting up to {wait_s:.0f} s for the database {shown}: {reason}")
            said = True
        time.sleep(RETRY_S)


def engine_of(url: str) -> Engine:
    """The database at `url`, not connected to yet; SettingsError when it is no such address."""
    try:
        parsed = make_url(url)
        # Else a host that swallows packets would be waited for, for minutes.
        arguments = {"connect_timeout": CONNECT_S} if parsed.drivername in POSTGRES else {}
        return create_engine(parsed, poolclass=NullPool, connect_args=arguments)
    except (ArgumentError, ModuleNotFoundError, ValueError) as error:
        raise SettingsError(f"{DATABASE} is no address of a database: {error}") from error


def why_not_connected(engine: Engine) -> str | None:
    """The driver's own words, without SQLAlchemy's frame around them; None when it connects."""
    try:
        with engine.connect():
            return None
    except SQLAlchemyError as error:
        return " ".join(str(getattr(error, "orig", None) or error).split())


def migrate_database() -> None:
    """Bring Airflow's tables to this version; those of a new database are made."""
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise SettingsError(
            f"`airflow db migrate` failed on the database of {DATABASE} "
            f"(exit code {code}): its output is above"
        )


if __name__ == "__main__":
    sys.exit(main())
