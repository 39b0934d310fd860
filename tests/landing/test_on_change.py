"""What a Delta source does with changed rows is changed itself, between a kill and the next run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing.batch import Batch
from include.landing.delta_parts import part_named
from include.landing.ingest import ingest
from include.settings import Source
from tests.deaths import KilledError
from tests.ingested import SPLIT_ALWAYS, bronze_of
from tests.theirs import Theirs

pytestmark = pytest.mark.slow


@pytest.fixture
def theirs(tmp_path: Path) -> Theirs:
    return Theirs(tmp_path, partition_by=["device_id"], has_feed=True)


@contextmanager
def dying_behind_a_file() -> Iterator[None]:
    write = ingestion.BatchWriter.write

    def and_die(self: ingestion.BatchWriter, batch: Batch, *sizes: Any) -> None:
        write(self, batch, *sizes)
        if any(part_named(name).is_file for name in batch.files):
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion.BatchWriter, "write", and_die)
        with pytest.raises(KilledError):
            yield


def one_file_a_batch(theirs: Theirs, on_change: str) -> Source:
    return replace(theirs.source(on_change=on_change), commit_bytes=SPLIT_ALWAYS)


@pytest.mark.parametrize("then", ["ignore", "stop", "inserts"])
def test_a_version_of_which_a_file_was_taken_is_taken_to_its_end_whatever_is_said_by_then(
    lake: Lake, theirs: Theirs, then: str
):
    theirs.append(4)
    ingest(lake, one_file_a_batch(theirs, "inserts"))
    theirs.append(4, mode="overwrite")
    with dying_behind_a_file():
        ingest(lake, one_file_a_batch(theirs, "inserts"))
    assert len(bronze_of(lake)) == 6
    ingest(lake, one_file_a_batch(theirs, then))
    assert sorted(row["value"] for row in bronze_of(lake)) == list(range(8))
