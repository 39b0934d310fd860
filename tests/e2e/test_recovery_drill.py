"""A recovery drill on Spark: equal, with the lake left as it was; and a changed row is found."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.care.last_drill import last_drill
from include.lake.paths import Lake
from tests.care.drills import commands_on, drilled, hashes, plant
from tests.faults.lakes import STREAMS, Story, registered

pytestmark = [pytest.mark.full, pytest.mark.spark]


def test_a_drill_is_equal_and_after_a_change_by_hand_it_is_not(spark: SparkSession, tmp_path: Path):
    root = tmp_path / "lake"
    root.mkdir()
    commands = commands_on(spark)
    story = Story(Lake(str(root)), STREAMS["device_signals"], 0)
    with registered(), commands.installed():
        for _ in range(2):
            story = story.land()
            told = commands.stateful(story.lake.root, "stream device_signals")
            assert told.code == 0, told.text
        before = hashes(story.lake)
        told = drilled(commands, story)
        assert told.code == 0, told.text
        assert hashes(story.lake) == before
        assert last_drill(story.lake, "device_signals")["is_equal"] is True
        plant(story)
        told = drilled(commands, story)
        assert told.code == 1
        assert "not equal" in told.text, told.text
        assert last_drill(story.lake, "device_signals")["is_equal"] is False
