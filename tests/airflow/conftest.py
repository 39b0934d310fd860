"""An Airflow of its own for each test that asks for one, migrated once."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from include.airflow.environment import PLUGINS
from include.lake.paths import Lake
from include.registry import source_named
from include.streams import sources
from tests.airflow_runs import environment_of, migrate_database
from tests.dags import load_dags

HEARTBEAT_DELAY = timedelta(minutes=1)


@pytest.fixture
def lake_dags(lake: Lake):
    return load_dags(lake.root)


@pytest.fixture
def user_events_have_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    source = replace(source_named("user_events"), heartbeat_delay=HEARTBEAT_DELAY)
    others = [each for each in sources.SOURCES if each.name != source.name]
    monkeypatch.setattr(sources, "SOURCES", (source, *others))


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("migrated")
    return migrate_database(folder / "airflow", Lake(str(folder / "lake")))


@pytest.fixture
def airflow_environment(tmp_path: Path, lake: Lake, migrated_database: Path) -> dict[str, str]:
    home = tmp_path / "airflow"
    home.mkdir()
    shutil.copy(migrated_database, home)
    return environment_of(home, lake)


@pytest.fixture
def plugins_environment(tmp_path: Path, airflow_environment: dict[str, str]) -> dict[str, str]:
    """The same with our plugins, for the Dags of a folder `dags` that is empty yet."""
    folder = tmp_path / "dags"
    folder.mkdir()
    return airflow_environment | {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
    }
