"""A restore as docs/operate.md says to try it: mended on a copy, which comes to the same rows."""

import hashlib
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.lake.paths import Lake
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from tests.faults.command_line import CommandLine
from tests.faults.lakes import STREAMS, Story, registered
from tests.landed_sql import table_rows

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

NAME = "device_signals"


def hashes(root: Path) -> dict[Path, str]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_copy_that_has_lost_its_checkpoint_is_rebuilt_to_the_same_rows(
    spark: SparkSession, tmp_path: Path
):
    root = tmp_path / "lake"
    root.mkdir()
    commands = CommandLine(
        lambda: SparkEngine(spark), lambda: spark, lambda: close_state_stores(spark)
    )
    story = Story(Lake(str(root)), STREAMS[NAME], 0)
    with registered(), commands.installed():
        for _ in range(2):
            story = story.land()
            told = commands.stateful(str(root), f"stream {NAME}")
            assert told.code == 0, told.text
        before = hashes(root)
        copy = story.copied(tmp_path / "copy")
        shutil.rmtree(copy.root / "checkpoints" / NAME)
        assert commands.stateful(str(copy.root), f"stream {NAME}").code != 0
        told = commands.stateful(str(copy.root), f"rebuild {NAME} --apply")
        assert told.code == 0, told.text
    assert table_rows(story.lake, NAME)
    assert table_rows(copy.lake, NAME) == table_rows(story.lake, NAME)
    assert hashes(root) == before
