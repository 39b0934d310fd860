"""What must be there before Airflow starts: the service `airflow-init` of docker-compose.yaml.

    python -m include.docker.prepare_airflow

Settings come from the environment, and are checked before anything is changed. All of it can be
repeated, and is, at each `docker compose up`, which waits for a healthy PostgreSQL first.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from uuid import uuid4

from cryptography.fernet import Fernet
from pyarrow import ArrowException, fs

from include.airflow.environment import checked_parallelism, passwords_in, write_passwords
from include.lake.errors import LakeError, SettingsError
from include.lake.paths import REASON_CHARACTERS, Lake
from include.registry import all_sources
from include.spark.conf import checked_master
from include.spark.submit import say

DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
FERNET_KEY = "AIRFLOW__CORE__FERNET_KEY"
USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
PASSWORDS_FILE = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
PARALLELISM = "AIRFLOW__CORE__PARALLELISM"
PASSWORD = "AIRFLOW_ADMIN_PASSWORD"  # noqa: S105 (its name)


def main(argv: Sequence[str] | None = None) -> int:
    ArgumentParser(description="Prepare database, login and lake for Airflow.").parse_args(argv)
    try:
        prepare(os.environ)
    except (SettingsError, LakeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    say("Airflow can start")
    return 0


def prepare(environment: Mapping[str, str]) -> None:
    """All steps; SettingsError or LakeError, naming a setting, at the first that cannot be done."""
    checked_master(setting(environment, "SPARK_MASTER"))
    check_fernet_key(environment)
    checked_parallelism(setting(environment, PARALLELISM))
    setting(environment, DATABASE)
    prepare_lake(setting(environment, "LAKE"))
    write_password(environment)
    migrate_database()


def setting(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise SettingsError(
            f"{name} is not set: docker-compose.yaml gives it to this step", subject=name
        )
    return value


def check_fernet_key(environment: Mapping[str, str]) -> None:
    """Airflow itself finds out when it first encrypts a connection, months later."""
    key = setting(environment, FERNET_KEY)
    try:
        Fernet(key)
    except ValueError as error:
        raise SettingsError(
            f"{FERNET_KEY} is no Fernet key ({error}): take the AIRFLOW_FERNET_KEY of a file that is written by",
            subject=FERNET_KEY,
            command="make compose-env",
        ) from error


def prepare_lake(root: str) -> None:
    """That this process can write into the lake at `root`; else LakeError, naming LAKE.

    A local one is made, with a landing folder for each source, so that files can be put there.
    """
    lake = Lake(root.rstrip("/") or "/")
    try:
        if isinstance(lake.filesystem, fs.LocalFileSystem):
            for source in all_sources():
                landing = lake.path_in_filesystem(lake.landing(source.name))
                lake.filesystem.create_dir(landing, recursive=True)
        write_and_delete(lake)
    except (OSError, ArrowException) as error:
        reason = shorten(str(error), REASON_CHARACTERS)
        raise LakeError(
            f"the lake LAKE={root} cannot be written: {reason}. It must be a folder of a volume "
            "that all of Airflow and Spark have, or an object store with credentials in the "
            "environment",
            code="wrong_setting",
            subject="LAKE",
        ) from error


def write_and_delete(lake: Lake) -> None:
    """Only a write shows rights, quotas and read-only mounts."""
    # Hidden, so that a reader that lists the lake meanwhile passes over it.
    probe = lake.path_in_filesystem(f"{lake.root}/.probe-{uuid4()}")
    with lake.filesystem.open_output_stream(probe) as output:
        output.write(b"writable")
    lake.filesystem.delete_file(probe)


def write_password(environment: Mapping[str, str]) -> None:
    """Put the first user's password where Airflow looks for it, in place of one it would make up."""
    user = setting(environment, USERS).partition(":")[0]
    password = setting(environment, PASSWORD)
    file = Path(setting(environment, PASSWORDS_FILE))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_passwords(file, passwords_in(file) | {user: password})
    except OSError as error:
        raise SettingsError(
            f"{PASSWORDS_FILE}={file} cannot be written: {error}", subject=PASSWORDS_FILE
        ) from error


def migrate_database() -> None:
    """Bring Airflow's tables to this version; those of a new database are made."""
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise SettingsError(
            f"`airflow db migrate` failed on the database of {DATABASE} "
            f"(exit code {code}): its output is above",
            subject=DATABASE,
        )


if __name__ == "__main__":
    sys.exit(main())
