"""A batch of a Delta table is begun, and its version is cleaned up from the log before it is repeated."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing.ingest import RunCounts, ingest
from include.landing.parsed_batch import ParsedHere
from include.settings import Source
from tests.deaths import KilledError, die
from tests.ingested import bronze_of, quarantine_of
from tests.refused import refused
from tests.theirs import Theirs, forget_logs, skip_lost, values_of

pytestmark = pytest.mark.slow


def die_in_a_run(lake: Lake, source: Source, before: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion if before == "finish" else ParsedHere, before, die)
        with pytest.raises(KilledError):
            ingest(lake, source)
    forget_logs()


def clean_up(theirs: Theirs) -> None:
    DeltaTable(theirs.uri).create_checkpoint()
    for version in range(DeltaTable(theirs.uri).version()):
        theirs.commit_file(version).unlink()


@pytest.mark.parametrize("partition_by", [None, ["device_id"]])
@pytest.mark.parametrize("before", ["append_accepted", "append_refused", "finish"])
def test_files_that_the_table_still_has_are_taken(
    lake: Lake, tmp_path: Path, partition_by: list[str] | None, before: str
):
    theirs = Theirs(tmp_path, partition_by)
    source = theirs.source()
    theirs.append(2)
    ingest(lake, source)
    theirs.append(2, bad=1)
    die_in_a_run(lake, source, before)
    theirs.append(1)
    theirs.append(1)
    clean_up(theirs)
    with refused("lost_input", subject="signals", command="./stateful skip-lost signals --apply"):
        ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 3]
    assert len(quarantine_of(lake)) == 1
    skip_lost(lake, source)
    ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 3, 6]
    assert {row["device_id"] for row in bronze_of(lake)} == {0, 1}
    assert ingest(lake, source) == RunCounts()


def test_a_file_that_was_compacted_is_given_up_where_nothing_tells_its_partition(
    lake: Lake, tmp_path: Path
):
    theirs = Theirs(tmp_path, ["device_id"])
    source = theirs.source()
    theirs.append(2)
    ingest(lake, source)
    theirs.append(2)
    die_in_a_run(lake, source, "append_accepted")
    theirs.optimize()
    clean_up(theirs)
    with refused("lost_input", subject="signals"):
        ingest(lake, source)
    assert "has lost 2 files" in skip_lost(lake, source).what
    ingest(lake, source)
    assert values_of(lake) == [0, 1]
    assert ingest(lake, source) == RunCounts()
