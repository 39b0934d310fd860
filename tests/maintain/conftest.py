"""The checkpoint that checks of state are tried on."""

from pathlib import Path

import pytest

from include.lake.paths import Lake
from tests.maintain.checked import STREAM
from tests.stream.spark_checkpoint import SparkCheckpoint


@pytest.fixture
def made(lake: Lake) -> SparkCheckpoint:
    """Six batches: snapshots of the versions 1 and 4, change logs of all but the first."""
    checkpoint = SparkCheckpoint(Path(lake.checkpoint(STREAM.name, 1)), partitions=2)
    checkpoint.batch(snapshot=True, changelog=False)
    for batch in range(1, 6):
        checkpoint.batch(snapshot=batch == 3)
    return checkpoint
