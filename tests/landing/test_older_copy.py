"""A Delta table is put back as an older copy, and goes on: its next versions have the numbers of others."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing.arrivals import OriginError
from include.landing.ingest import RunCounts, ingest
from include.landing.origin import waiting
from include.landing.parsed_batch import ParsedHere
from include.landing.skip_lost import apply_skip, plan_skip
from include.settings import Source
from tests.deaths import KilledError, die
from tests.examples import examples
from tests.ingested import SPLIT_ALWAYS
from tests.landed_files import START
from tests.theirs import Theirs, forget_logs, remember_no_commit, skip_lost, values_of

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
    skip_lost(lake, source)
    theirs.append(1)
    forget_logs()
    ingest(lake, source)
    assert values_of(lake)[-1] == theirs.given - 1
    assert not has_grown or 4 in values_of(lake)  # what the copy had grown by
    assert ingest(lake, source) == RunCounts()


@pytest.mark.parametrize("grown_by", [1, 2, 3])
def test_a_copy_that_has_grown_stops_until_it_is_gone_on_with_where_it_is_the_same(
    lake: Lake, theirs: Theirs, grown_by: int
):
    """To fewer, to as many, and to more versions than were taken."""
    source = theirs.source()
    for _ in range(2):
        theirs.append(1)
        ingest(lake, source)
    for _ in range(2):
        theirs.append(1)
    ingest(lake, source)
    put_back(theirs, 1)
    for _ in range(grown_by):
        theirs.append(1)
    assert waiting(lake, source) == 1
    for _ in range(2):
        with pytest.raises(OriginError, match=r"older copy.*skip-lost signals"):
            ingest(lake, source)
    assert skip_lost(lake, source).text().endswith("It would go on behind 1/")
    ingest(lake, source)
    assert values_of(lake) == [*range(theirs.given)]
    assert ingest(lake, source) == RunCounts()


@pytest.mark.parametrize("is_begun_with", [True, False])
def test_a_copy_of_which_no_version_is_remembered_is_gone_on_with_where_it_ends(
    lake: Lake, theirs: Theirs, monkeypatch: pytest.MonkeyPatch, is_begun_with: bool
):
    """As what it was begun with is newer; or a release before has taken it, and remembered none."""
    source = theirs.source()
    for _ in range(3):
        theirs.append(1)
        if not is_begun_with:
            remember_no_commit(monkeypatch)
            ingest(lake, source)
    monkeypatch.undo()
    ingest(lake, source)
    put_back(theirs, 0)
    theirs.append(1)
    with pytest.raises(OriginError, match="taken until version 2, but ends at 1"):
        ingest(lake, source)
    skip_lost(lake, source)
    theirs.append(1)
    ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 4]


def test_a_position_without_a_mark_is_believed_until_the_next_batch(
    lake: Lake, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
):
    source = theirs.source()
    theirs.append(1)
    with monkeypatch.context() as patch:
        remember_no_commit(patch)
        ingest(lake, source)
    theirs.append(1)
    assert ingest(lake, source).rows_bronze == 1
    put_back(theirs, 0)
    theirs.append(1)
    with pytest.raises(OriginError, match=r"version 1 of .* another one now"):
        ingest(lake, source)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"{")])
def test_a_version_whose_commit_is_gone_or_damaged_since_is_believed(
    lake: Lake, theirs: Theirs, damage: Callable[[Path], object]
):
    source = theirs.source()
    theirs.append(1)
    theirs.append(1)
    ingest(lake, source)
    theirs.append(1)
    DeltaTable(theirs.uri).create_checkpoint()
    damage(theirs.commit_file(1))
    assert ingest(lake, source).rows_bronze == 1
    assert values_of(lake) == [0, 1, 2]


def test_a_copy_that_was_gone_on_with_may_be_replaced_by_what_was_before(
    lake: Lake, theirs: Theirs, tmp_path: Path
):
    source = theirs.source()
    theirs.append(1)
    ingest(lake, source)
    theirs.append(1)
    ingest(lake, source)
    shutil.copytree(theirs.uri, tmp_path / "first")
    put_back(theirs, 0)
    theirs.append(1)
    skip_lost(lake, source)
    ingest(lake, source)
    shutil.rmtree(theirs.uri)
    shutil.copytree(tmp_path / "first", theirs.uri)
    theirs.append(1)
    skip_lost(lake, source)
    ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 3]


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "upsert", "ingest", "optimize", "put_back"]), st.integers(0, 9)
    ),
    min_size=4,
    max_size=14,
)


@examples(20)
@given(steps)
def test_each_row_of_each_branch_that_a_run_has_seen_is_taken_once(steps: list[tuple[str, int]]):
    with TemporaryDirectory() as root:
        theirs, lake = Theirs(Path(root), has_feed=True), Lake(f"{root}/lake")
        source = theirs.source(on_change="inserts")
        theirs.append(1)
        versions, seen = [{0}], set[int]()
        for name, number in [("ingest", 0), *steps, ("ingest", 0)]:
            before = theirs.given
            if name == "put_back":
                versions = versions[: number % len(versions) + 1]
                put_back(theirs, len(versions) - 1)
            elif name == "ingest":
                skip_and_ingest(lake, replace(source, commit_bytes=1 if number % 2 else 10**9))
                seen |= set().union(*versions)
            else:
                given_ = {"append": (1,), "upsert": (0,), "optimize": ()}[name]
                getattr(theirs, name)(*given_)
                versions += [{*range(before, theirs.given)}] * (
                    DeltaTable(theirs.uri).version() + 1 - len(versions)
                )
        assert values_of(lake) == sorted(seen)


def skip_and_ingest(lake: Lake, source: Source) -> None:
    if plan := plan_skip(lake, source, START):
        apply_skip(lake, source, plan)
    ingest(lake, source)


def dying_behind(write: Callable[..., None]) -> Callable[..., None]:
    def and_die(*given: object) -> None:
        write(*given)
        raise KilledError

    return and_die
