"""A Delta table is put back as an older copy, and goes on: its next versions have the numbers of others."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing.arrivals import OriginError
from include.landing.ingest import RunCounts, ingest
from include.landing.parsed_batch import ParsedHere
from tests.deaths import KilledError, die
from tests.ingested import SPLIT_ALWAYS
from tests.theirs import Theirs, forget_logs, skip_lost, values_of

pytestmark = pytest.mark.slow


@pytest.fixture
def theirs(tmp_path: Path) -> Theirs:
    return Theirs(tmp_path, has_feed=True)


def put_back(theirs: Theirs, version: int) -> None:
    for path in Path(theirs.uri, "_delta_log").glob("*.json"):
        if int(path.stem) > version:
            path.unlink()


def test_a_version_that_is_passed_over_is_told_though_its_number_was_before(
    lake: Lake, theirs: Theirs
):
    source = theirs.source(on_change="ignore")
    theirs.append(3)
    ingest(lake, source)
    theirs.delete(1)
    ingest(lake, source)
    put_back(theirs, 0)
    skip_lost(lake, source)
    theirs.append(4, mode="overwrite")
    theirs.append(1)
    ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 7]
    assert read_ops(lake, "findings")["finding"].to_pylist().count("versions_ignored") == 2


def test_a_version_that_updates_stops_though_the_inserts_of_its_number_were_taken(
    lake: Lake, theirs: Theirs
):
    source = theirs.source(on_change="inserts")
    theirs.append(3)
    ingest(lake, source)
    theirs.upsert(1)
    ingest(lake, source)
    put_back(theirs, 0)
    skip_lost(lake, source)
    theirs.upsert(2)
    with pytest.raises(OriginError, match=r"version 1 of .* deletes or updates rows"):
        ingest(lake, theirs.source(on_change="stop"))
    ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 3, 4]


def test_a_copy_older_than_what_the_source_was_begun_with_is_gone_on_with(
    lake: Lake, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(4):
        theirs.append(1)
    source = replace(theirs.source(), commit_bytes=SPLIT_ALWAYS)
    with monkeypatch.context() as patch:
        patch.setattr(ingestion.BatchWriter, "write", dying_behind(ingestion.BatchWriter.write))
        with pytest.raises(KilledError):
            ingest(lake, source)
    put_back(theirs, 1)
    with pytest.raises(OriginError, match="skip-lost"):
        ingest(lake, source)
    assert skip_lost(lake, source).count == 0
    theirs.append(1)
    ingest(lake, source)
    assert values_of(lake) == [0, 4]
    assert ingest(lake, source) == RunCounts()


@pytest.mark.parametrize("has_grown", [True, False])
@pytest.mark.parametrize("partition_by", [None, ["device_id"]])
def test_a_batch_that_was_begun_before_goes_on_without_what_the_copy_does_not_tell(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition_by: list[str] | None,
    has_grown: bool,
):
    theirs = Theirs(tmp_path, partition_by)
    source = theirs.source()
    theirs.append(2)
    ingest(lake, source)
    theirs.append(2)
    with monkeypatch.context() as patch:
        patch.setattr(ParsedHere, "append_accepted", die)
        with pytest.raises(KilledError):
            ingest(lake, source)
    put_back(theirs, 0)
    if has_grown:
        theirs.append(1)
    forget_logs()
    if partition_by:
        with pytest.raises(OriginError, match=r"partition .* cannot be told .*skip-lost signals"):
            ingest(lake, source)
        assert skip_lost(lake, source).count == 2
    with suppress(OriginError):  # that the copy is an older one
        ingest(lake, source)
    assert values_of(lake) == ([0, 1] if partition_by else [0, 1, 2, 3])
    if not has_grown:
        skip_lost(lake, source)
    theirs.append(1)
    forget_logs()
    ingest(lake, source)
    assert values_of(lake)[-1] == theirs.given - 1
    assert ingest(lake, source) == RunCounts()


def dying_behind(write: Callable[..., None]) -> Callable[..., None]:
    def and_die(*given: object) -> None:
        write(*given)
        raise KilledError

    return and_die
