"""Prepare lake, password and database for Airflow: the service `airflow-init` of docker-compose.yaml.

It runs at each `docker compose up`, once PostgreSQL is up.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyarrow import fs

from include.airflow.environment import passwords_in, write_passwords
from include.job import exit_with_main
from include.lake.errors import SettingsError
from include.lake.paths import made_lake
from include.registry import all_sources
from include.spark.conf import checked_master
from include.spark.submit import say

DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
PASSWORDS_FILE = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
PASSWORD = "AIRFLOW_ADMIN_PASSWORD"  # noqa: S105 (its name)


def main() -> None:
    """Take all steps; exit code 2 for a wrong setting, which the last line names."""
    prepare(os.environ)
    say("Airflow can start")


def prepare(environment: Mapping[str, str]) -> None:
    """Take all steps; raises SettingsError or LakeError, which names the setting, at the first that fails."""
    checked_master(environment["SPARK_MASTER"])
    prepare_lake(environment["LAKE"])
    write_password(environment)
    migrate_database()


def prepare_lake(root: str) -> None:
    """Make the lake at `root`, and a landing folder for each source if it is local; raises LakeError."""
    lake = made_lake(root)
    if isinstance(lake.filesystem, fs.LocalFileSystem):
        for source in all_sources():
            landing = lake.path_in_filesystem(lake.landing(source.name))
            lake.filesystem.create_dir(landing, recursive=True)


def write_password(environment: Mapping[str, str]) -> None:
    """Write the first user's password to the file where Airflow looks for it."""
    user = environment[USERS].partition(":")[0]
    file = Path(environment[PASSWORDS_FILE])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_passwords(file, passwords_in(file) | {user: environment[PASSWORD]})


def migrate_database() -> None:
    """Make or migrate Airflow's database; raises SettingsError when that fails."""
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    if subprocess.run(command, check=False).returncode:
        raise SettingsError(
            f"`airflow db migrate` failed on the database of {DATABASE}: its output is above",
            subject=DATABASE,
        )


if __name__ == "__main__":
    exit_with_main(main)
