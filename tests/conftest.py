"""What tests share: one local Spark session per process, and a lake in a fresh folder."""

import logging
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from xdist.scheduler import LoadScopeScheduling

from include.lake.paths import Lake, files_of
from include.spark.conf import (
    FORKLESS,
    STATE,
    STATE_STORE,
    jars,
    job_conf,
    spark_home,
    spark_package,
)
from spark_jobs.job import close_state_stores
from tests.examples import ALL

# A loaded machine must not fail a test: no limit on time.
settings.register_profile(
    "all", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=ALL
)
settings.register_profile("tests", settings.get_profile("all"), max_examples=ALL // 10)
settings.register_profile("few", settings.get_profile("all"), max_examples=ALL // 20)
settings.load_profile("tests")

# Workers must run this interpreter, and import the project.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
# Airflow makes its home when it is imported: not in the person's.
os.environ["AIRFLOW_HOME"] = str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "airflow")
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Importing Airflow turns INFO on, and py4j logs from __del__ when pytest's streams are closed.
logging.getLogger("py4j").setLevel(logging.WARNING)
# It logs as root, too: of a traceback within a parse, as of garbage there, comes a SystemError.
logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)

DAY_MS = 24 * 3_600_000
TURNS = 3

# As the project reads (`files_of`): through delta-rs's own files, which are written in Python, a
# scan of Arrow's has waited for ever, about once in 50,000 tests.
_dataset_of = DeltaTable.to_pyarrow_dataset


def _dataset_in_arrows_files(
    table: DeltaTable, partitions: Any = None, filesystem: Any = None, **options: Any
) -> Any:
    path = unquote(table.table_uri.removeprefix("file://"))
    return _dataset_of(table, partitions, filesystem or files_of(path), **options)


DeltaTable.to_pyarrow_dataset = _dataset_in_arrows_files  # type: ignore[method-assign]


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are named by their argument: those of gzip tell the time, so two processes that
    collect the same tests in different seconds would give them different names."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """For `--dist loadgroup`: xdist 3.8 writes a test's group into its id, where pytest 9.2 does not
    read it any more, so that no group would stay together."""
    return GroupedFiles(config, log) if config.getvalue("dist") == "loadgroup" else None


class GroupedFiles(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of files that are marked as one group go to one process; all others one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0]) or nodeid


@cache
def _group(file: str) -> str | None:
    """The group that a file marks all its tests as; None of one that does not."""
    found = re.search(r'pytest\.mark\.xdist_group\("([^"]+)"\)', Path(file).read_text())
    return found and found[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", type=int, help="of the tests that take turns, which: modulo 3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those that need a JVM first. Of two processes the first half then goes to one, so that the
    other starts a JVM only when it has done what needs none, and takes some of these."""
    if (turn := config.getoption("turn")) is not None:
        _leave_out_others(config, items, turn % TURNS)
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def _leave_out_others(config: pytest.Config, items: list[pytest.Item], turn: int) -> None:
    marked = {item: item.get_closest_marker("turn") for item in items}
    others = [item for item, mark in marked.items() if mark and mark.args != (turn,)]
    items[:] = [item for item in items if item not in others]
    config.hook.pytest_deselected(items=others)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        **job_conf(),
        **STATE,
        **FORKLESS,
        "spark.jars": ",".join(map(str, jars())),
        "spark.driver.memory": "2g",
        # A job ends before this thread wakes up. In the one JVM of the tests it would wake up
        # within some test each minute, and upload and delete files which that test counts.
        f"{STATE_STORE}.maintenanceInterval": str(DAY_MS),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    os.environ["SPARK_HOME"] = str(spark_home(spark_package()))  # as jobs have it
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _unloaded_state_stores() -> Iterator[None]:
    """Close the state stores that a module's queries left open: no maintenance does."""
    yield
    session = SparkSession._instantiatedSession
    if session is not None:
        close_state_stores(session)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    root = tmp_path / "lake"
    root.mkdir()
    return Lake(str(root))
