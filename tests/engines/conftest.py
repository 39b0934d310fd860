"""A lake in which a stream was drained once, for the tests that go on from there."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.lake.paths import Lake
from include.streams import user_counts
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import append_commit
from tests.engines.live_lakes import COUNTED, COUNTS


@pytest.fixture(scope="session")
def counted_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The first of the commits COUNTED, drained by COUNTS. Copied, never changed."""
    lake = Lake(str(tmp_path_factory.mktemp("counted")))
    append_commit(lake, COUNTS.source, user_counts.FOLD, COUNTED[0])
    drain(SparkEngine(spark), lake, COUNTS)
    return lake


@pytest.fixture
def counted_lake(counted_once: Lake, tmp_path: Path) -> Lake:
    return Lake(shutil.copytree(counted_once.root, str(tmp_path / "copy")))
