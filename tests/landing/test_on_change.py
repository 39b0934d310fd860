"""What a Delta source does with changed rows is changed itself, between a kill and the next run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing import delta_versions
from include.landing import ingest as ingestion
from include.landing.batch import Batch
from include.landing.delta_parts import part_named
from include.landing.ingest import ingest
from include.settings import Source
from tests.deaths import KilledError, die
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


@pytest.mark.parametrize(("was", "then"), [("ignore", "inserts"), ("inserts", "ignore")])
def test_the_finding_says_what_was_done_with_a_version_and_not_what_would_be_by_now(
    lake: Lake, theirs: Theirs, monkeypatch: pytest.MonkeyPatch, was: str, then: str
):
    theirs.append(4)
    ingest(lake, theirs.source(on_change=was))
    theirs.append(4, mode="overwrite")
    with monkeypatch.context() as patch:
        patch.setattr(ingestion, "record_findings", die)
        with pytest.raises(KilledError):
            ingest(lake, theirs.source(on_change=was))
    ingest(lake, theirs.source(on_change=then))
    (found,) = read_ops(lake, "findings").to_pylist()
    assert ("but for the rows that they insert" in found["detail"]) == (len(bronze_of(lake)) == 8)
    assert (len(bronze_of(lake)) == 8) == (was == "inserts")


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


def test_inserts_that_an_earlier_release_has_begun_to_take_as_changes_are_taken_to_their_end(
    lake: Lake, theirs: Theirs
):
    """For it, each version with files of changes was one that updates."""
    source = one_file_a_batch(theirs, "inserts")
    theirs.append(4)
    ingest(lake, source)
    theirs.merge_new(4)
    with pytest.MonkeyPatch.context() as patch, dying_behind_a_file():
        patch.setattr(delta_versions, "_takes_away", lambda action: "cdc" in action)
        ingest(lake, source)
    assert len(bronze_of(lake)) == 6
    ingest(lake, source)
    assert sorted(row["value"] for row in bronze_of(lake)) == list(range(8))
