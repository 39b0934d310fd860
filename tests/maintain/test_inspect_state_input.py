"""`./stateful inspect` on all kinds of checkpoints: skewed, half written, damaged, not ours, moving."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.observe.state_report import StateReport
from include.registry import stream_named
from spark_jobs import inspect_state as job
from spark_jobs.inspect_state import inspect_state
from tests.skewed_state import COLD, HOT, SKEWED, drain_skewed, hot_and_cold_users

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.xdist_group("skewed state")]


@pytest.fixture(scope="module")
def skewed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("skewed") / "lake"))
    drain_skewed(spark, lake)
    return lake


@pytest.fixture(scope="module")
def report(spark: SparkSession, skewed: Lake) -> StateReport:
    return inspect_state(spark, skewed, SKEWED)


@pytest.fixture
def copied(skewed: Lake, tmp_path: Path) -> Lake:
    """A copy of it to spoil."""
    shutil.copytree(skewed.root, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


def checkpoint_of(lake: Lake) -> Path:
    return Path(lake.checkpoint(SKEWED.name, 1))


def test_skew_and_the_biggest_keys_show(spark, skewed, report):
    assert report.bucket_skew["keys"] == HOT / COLD
    most = max(partition["keys"] for partition in report.partitions)
    fewest = report.keys - most
    assert report.partition_skew["keys"] == most / ((most + fewest) / 2) > 1
    assert report.bucket_skew["bytes"] > report.partition_skew["bytes"] > 1
    users = sorted(hot_and_cold_users(spark), key=lambda user: (-len(user), user))
    assert [key["key"] for key in report.biggest_keys] == users[:10]
    # Not the entry's numbers count, but those that the state was made with.
    assert inspect_state(spark, skewed, stream_named("user_counts")) == report


@pytest.mark.parametrize("lost", ["state", "state/0/1"])
def test_a_missing_state_partition_is_one_line(spark, copied, lost):
    """Spark's reader skips one that is not there."""
    shutil.rmtree(checkpoint_of(copied) / lost)
    with pytest.raises(LakeError):
        inspect_state(spark, copied, SKEWED)


def remove_state_files(state: Path) -> None:
    for file in state.glob("0/*/*"):
        if file.suffix in (".changelog", ".zip"):
            file.unlink()


def test_a_state_deleted_while_it_is_read_is_to_be_read_again(spark, copied, monkeypatch):
    """A compaction that commits batches in the meantime deletes the older ones."""
    checkpoint = checkpoint_of(copied)
    measure = job.measure_states

    def measure_too_late(*args: Any) -> Any:
        newest = max(
            int(log.name) for log in (checkpoint / "commits").iterdir() if log.name.isdigit()
        )
        for log in ("offsets", "commits"):
            shutil.copy(checkpoint / log / str(newest), checkpoint / log / str(newest + 1))
        remove_state_files(checkpoint / "state")
        return measure(*args)

    monkeypatch.setattr(job, "measure_states", measure_too_late)
    with pytest.raises(LakeError):
        inspect_state(spark, copied, SKEWED)
