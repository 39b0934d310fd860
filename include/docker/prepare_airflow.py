"""What must be there before Airflow starts: the service `airflow-init` of docker-compose.yaml.

All of it can be repeated, and is, at each `docker compose up`, which waits for PostgreSQL first.
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
    """Each step, and exit code 2 for a setting that is wrong, which the last line names."""
    prepare(os.environ)
    say("Airflow can start")


def prepare(environment: Mapping[str, str]) -> None:
    """All steps; SettingsError or LakeError, naming a setting, at the first that cannot be done."""
    checked_master(environment["SPARK_MASTER"])
    prepare_lake(environment["LAKE"])
    write_password(environment)
    migrate_database()


def prepare_lake(root: str) -> None:
    """The lake at `root`, a local one with a landing folder for each source, so that files can be put
    there; LakeError where it cannot be made."""
    lake = made_lake(root)
    if isinstance(lake.filesystem, fs.LocalFileSystem):
        for source in all_sources():
            landing = lake.path_in_filesystem(lake.landing(source.name))
            lake.filesystem.create_dir(landing, recursive=True)


def write_password(environment: Mapping[str, str]) -> None:
    """Put the first user's password where Airflow looks for it, in place of one it would make up."""
    user = environment[USERS].partition(":")[0]
    file = Path(environment[PASSWORDS_FILE])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_passwords(file, passwords_in(file) | {user: environment[PASSWORD]})


def migrate_database() -> None:
    """Bring Airflow's tables to this version; those of a new database are made."""
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    if subprocess.run(command, check=False).returncode:
        raise SettingsError(
            f"`airflow db migrate` failed on the database of {DATABASE}: its output is above",
            subject=DATABASE,
        )


if __name__ == "__main__":
    exit_with_main(main)
