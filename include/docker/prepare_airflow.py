"""Prepare lake and password for Airflow: the service `airflow-init` of docker-compose.yaml, before its database."""

import os
from collections.abc import Mapping
from pathlib import Path

from pyarrow import fs

from include.airflow.environment import passwords_in, write_passwords
from include.job import exit_with_main
from include.lake.paths import made_lake
from include.registry import all_sources
from include.spark.conf import checked_master

USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
PASSWORDS_FILE = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
PASSWORD = "AIRFLOW_ADMIN_PASSWORD"  # noqa: S105 (its name)


def prepare(environment: Mapping[str, str]) -> None:
    """Take all steps; raises SettingsError or LakeError, which names the setting, at the first that fails."""
    checked_master(environment["SPARK_MASTER"])
    prepare_lake(environment["LAKE"])
    write_password(environment)


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


if __name__ == "__main__":
    exit_with_main(lambda: prepare(os.environ))
