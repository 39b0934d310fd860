"""Rows of somebody else's Delta table: each append once, and nothing else in silence."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from include import connectors
from include.ingest.ingest import ingest, why_not_ingest
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import Counts
from include.ingest.source_connector import lag_of_run, waiting
from include.ingest.splits import ConnectorError
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import all_sources, source_named
from include.streams import sources
from tests.deaths import Dying, KilledError
from tests.examples import examples
from tests.ingested import SIGNALS, bronze_of, quarantine_of
from tests.landed_files import START
from tests.refused import refused
from tests.theirs import Theirs, stop_until_accepted, values_of

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def theirs(tmp_path: Path) -> Theirs:
    return Theirs(tmp_path)


def test_the_backlog_comes_first_and_then_each_append(lake: Lake, theirs: Theirs):
    theirs.append(3)
    theirs.append(2, bad=1)
    source = theirs.source()
    assert not lag_of_run(lake, replace(source, spark_bytes=1)).is_little
    assert ingest(lake, source).of_run()["rows_landed"] == 6
    assert values_of(lake) == [0, 1, 2, 3, 4]
    (refused,) = quarantine_of(lake)
    assert (refused["reason_code"], refused["reason"]) == ("missing_field", "value")
    assert why_not_ingest(lake, source, None, NOW) == f"nothing new in the Delta table {theirs.uri}"
    theirs.append(2)
    assert waiting(lake, source) == 1
    assert ingest(lake, source).rows_bronze == 2
    assert values_of(lake) == [0, 1, 2, 3, 4, 6, 7]
    assert ingest(lake, source) == Counts()


TAKES_AWAY = {
    "delete": lambda theirs: theirs.delete(0),
    "overwrite": lambda theirs: theirs.append(2, mode="overwrite"),
    "merge": lambda theirs: theirs.merge_known(1),
    "merge that deletes": Theirs.merge_away,
}


@pytest.mark.parametrize("change", TAKES_AWAY)
def test_a_version_that_takes_rows_away_stops_or_is_ignored_with_a_finding(
    lake: Lake, theirs: Theirs, change: str
):
    theirs.append(2)
    ingest(lake, theirs.source())
    TAKES_AWAY[change](theirs)
    theirs.append(1)
    for _ in range(2):
        with refused("changed_input", subject="on_change"):
            ingest(lake, theirs.source())
    assert why_not_ingest(lake, theirs.source(), None, NOW) is None  # the run is to say so
    assert lag_of_run(lake, theirs.source()).is_little
    assert ingest(lake, theirs.source(on_change="ignore")).rows_bronze == 1
    assert values_of(lake) == [0, 1, theirs.given - 1]
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["count"]) == ("versions_ignored", 1)
    assert ingest(lake, theirs.source()) == Counts()


@pytest.mark.parametrize("on_change", ["stop", "ignore"])
def test_a_restore_gives_no_row_again(lake: Lake, tmp_path: Path, on_change: str):
    theirs = Theirs(tmp_path)
    theirs.append(2)
    theirs.append(2)
    ignoring = theirs.source(on_change="ignore")
    ingest(lake, ignoring)
    DeltaTable(theirs.uri).delete("value >= 2")  # a whole file
    ingest(lake, ignoring)
    DeltaTable(theirs.uri).restore(1)
    theirs.append(1)
    if on_change != "ignore":
        with refused("changed_input", subject="on_change"):
            ingest(lake, theirs.source(on_change=on_change))
        assert values_of(lake) == [0, 1, 2, 3]
    ingest(lake, ignoring)
    assert values_of(lake) == [0, 1, 2, 3, 4]
    found = read_ops(lake, "findings", {"finding": "versions_ignored"})["detail"].to_pylist()
    assert len([detail for detail in found if "versions 3 of" in detail]) == 1


def test_a_table_made_anew_stops_until_it_is_begun_with(lake: Lake, theirs: Theirs, tmp_path: Path):
    theirs.append(2)
    ingest(lake, theirs.source())
    Path(theirs.uri).rename(tmp_path / "old")
    theirs.append(3)
    assert stop_until_accepted(lake, theirs.source()) == 0
    assert ingest(lake, theirs.source()).rows_bronze == 3
    assert values_of(lake) == [0, 1, 2, 3, 4]
    assert ingest(lake, theirs.source()) == Counts()


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_versions_that_were_cleaned_up_stop_until_they_are_skipped(
    lake: Lake, theirs: Theirs, gone: int
):
    """Also where commits are still there, and what came before them is not."""
    theirs.append(1)
    ingest(lake, theirs.source())
    for _ in range(3):
        theirs.append(1)
    DeltaTable(theirs.uri).create_checkpoint()
    for version in range(gone):
        theirs.commit_file(version).unlink()
    assert stop_until_accepted(lake, theirs.source()) == 2
    ingest(lake, theirs.source())
    assert values_of(lake) == [0, 3]


def test_an_older_copy_stops_until_it_is_gone_on_with(lake: Lake, theirs: Theirs):
    for _ in range(3):
        theirs.append(1)
    ingest(lake, theirs.source())
    theirs.commit_file(2).unlink()
    assert stop_until_accepted(lake, theirs.source()) == 0
    theirs.append(1)
    ingest(lake, theirs.source())
    assert values_of(lake) == [0, 1, 2, 3]


@pytest.mark.parametrize("gone", [2, 3, 4])
def test_a_backlog_whose_version_is_cleaned_up_meanwhile_stops_until_it_is_skipped(
    lake: Lake, theirs: Theirs, monkeypatch: pytest.MonkeyPatch, gone: int
):
    """Also where its commit is still there, and those before it are not."""
    for _ in range(3):
        theirs.append(1)
    source = replace(theirs.source(), commit_bytes=1)
    with monkeypatch.context() as patch:
        Dying(patch, 3)  # behind the first batch
        with pytest.raises(KilledError):
            ingest(lake, source)
    assert values_of(lake) == [0]
    for _ in range(2):
        theirs.append(1)
    DeltaTable(theirs.uri).create_checkpoint()
    for version in range(gone):
        theirs.commit_file(version).unlink()
    assert stop_until_accepted(lake, source) == 2
    ingest(lake, source)
    assert values_of(lake) == [0, 4]
    assert ingest(lake, source) == Counts()


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_shallow_clone_is_refused_by_the_file_that_is_not_its_own(
    lake: Lake, theirs: Theirs, tmp_path: Path, scheme: str
):
    theirs.append()
    commit = Path(theirs.uri, "_delta_log", f"{0:020}.json")
    clone = tmp_path / "clone" / "_delta_log"
    clone.mkdir(parents=True)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = f"{scheme}{theirs.uri}/{action['add']['path']}"
    (clone / commit.name).write_text("\n".join(map(json.dumps, actions)))
    source = replace(SIGNALS, connector=connectors.DeltaTable(uri=str(clone.parent)))
    with refused("unreadable_input"):
        ingest(lake, source)
    assert not bronze_of(lake)


steps = st.lists(
    st.tuples(st.just("append"), st.integers(1, 2), st.integers(0, 1))
    | st.tuples(st.just("optimize"))
    | st.tuples(st.just("merge_new"), st.integers(1, 2))
    | st.tuples(st.just("ingest"), st.booleans(), st.none() | st.integers(0, 13)),
    max_size=12,
)


@examples(20)
@given(steps)
def test_every_appended_row_is_taken_once_wherever_runs_die(steps: list[Any]):
    with TemporaryDirectory() as root:
        theirs = Theirs(Path(root))
        theirs.append(2)
        lake = Lake(f"{root}/lake")
        for name, *given_ in steps:
            if name == "ingest":
                run(lake, theirs, *given_)
            else:
                getattr(theirs, name)(*given_)
        run(lake, theirs, False, None)
        refused = len(quarantine_of(lake))
        numbers = [*values_of(lake), *range(refused)]
        assert len(numbers) == theirs.given
        assert len(set(values_of(lake))) == theirs.given - refused
        assert refused == sum(given_[1] for name, *given_ in steps if name == "append")


def run(lake: Lake, theirs: Theirs, is_split: bool, dies_at: int | None) -> None:
    source = theirs.source()
    source = replace(source, commit_bytes=1) if is_split else source
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        if dies_at is not None:
            Dying(patch, dies_at)
        ingest(lake, source)


def test_a_table_that_is_replaced_while_a_run_takes_it_gives_each_row_once(
    lake: Lake, theirs: Theirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    theirs.append(1)
    source = replace(theirs.source(), commit_bytes=1)
    ingest(lake, source)
    for _ in range(4):
        theirs.append(1)
    other = Theirs(tmp_path / "other")
    other.given = 100
    for _ in range(6):
        other.append(1)
    commit, done = Ingestion.commit, []

    def replaced(self, entry):
        commit(self, entry)
        done.append(entry)
        if len(done) == 2:
            shutil.rmtree(theirs.uri)
            shutil.copytree(other.uri, theirs.uri)

    with monkeypatch.context() as patch, suppress(ConnectorError):
        patch.setattr(Ingestion, "commit", replaced)
        ingest(lake, source)
    assert stop_until_accepted(lake, source) == 0
    ingest(lake, source)
    assert values_of(lake) == [0, 1, 2, 100, 101, 102, 103, 104, 105]


def test_columns_of_a_file_that_the_table_does_not_have_are_deltas_own(lake: Lake, theirs: Theirs):
    """Spark leaves such in the files of a table with a feed of changes."""
    theirs.append(1)
    (file,) = Path(theirs.uri).rglob("*.parquet")
    rows = pq.read_table(file)
    own = pa.repeat(pa.scalar(False), rows.num_rows)
    pq.write_table(rows.append_column("__is_cdc", own), file)
    ingest(lake, theirs.source())
    assert [row["_rescued_data"] for row in bronze_of(lake)] == [None]


# Damaged files and commits


NOTE = "note"  # a column that is no field of the source


def made_table(uri: str, **named: object) -> None:
    rows = {
        "device_id": [0, 1],
        "timestamp": pa.array([START, START], pa.timestamp("us", "UTC")),
        "value": [0, 1],
        NOTE: ["a", "b"],
    }
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(uri, pa.table(rows), configuration=feed, **named)  # type: ignore[call-overload]


def damage(path: Path) -> None:
    """All bytes of the column NOTE are others."""
    column = pq.read_metadata(path).row_group(0).column(pq.read_schema(path).get_field_index(NOTE))
    first = column.dictionary_page_offset or column.data_page_offset
    content, behind = path.read_bytes(), first + column.total_compressed_size
    changed = bytes(byte ^ 0x7F for byte in content[first:behind])
    path.write_bytes(content[:first] + changed + content[behind:])


@pytest.mark.parametrize("rescue", [True, False])
def test_a_damaged_file_of_a_partition_gives_no_row_without_its_fields(
    lake: Lake, tmp_path: Path, rescue: bool
):
    """One that is read; and what is damaged in the other has no field."""
    uri = str(tmp_path / "theirs")
    made_table(uri, partition_by=["value"])
    (zero,) = Path(uri, "value=0").rglob("*.parquet")
    damage(zero)
    ingest(lake, replace(SIGNALS, connector=connectors.DeltaTable(uri=uri), rescue=rescue))
    assert [row["value"] for row in bronze_of(lake)] == ([1] if rescue else [0, 1])
    reasons = [row["reason_code"] for row in quarantine_of(lake)]
    assert reasons == ["unreadable_file"] * rescue


@pytest.mark.parametrize("version", [1, 2, 4])
@pytest.mark.parametrize("text", [b"", b'{"add', b"\0\0", b"\xff", b"7\n"])
def test_a_damaged_commit_behind_a_checkpoint_stops_until_it_is_skipped(
    lake: Lake, tmp_path: Path, version: int, text: bytes
):
    """Others read the checkpoint, and have its rows."""
    theirs = Theirs(tmp_path)
    theirs.append(1)
    ingest(lake, theirs.source())
    for _ in range(4):
        theirs.append(1)
    DeltaTable(theirs.uri).create_checkpoint()
    theirs.commit_file(version).write_bytes(text)
    # Until the checkpoint, where nothing leads behind it.
    last = max(version, 3) if text else version
    assert stop_until_accepted(lake, theirs.source()) == last - version + 1
    assert values_of(lake) == [*range(version)]  # what came before it
    ingest(lake, theirs.source())
    assert values_of(lake) == [*range(version), *range(last + 1, 5)]
    assert ingest(lake, theirs.source()) == Counts()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_table_of_this_lake_is_no_delta_source(
    lake: Lake, scheme: str, monkeypatch: pytest.MonkeyPatch
):
    """Else its Dag would have two Assets of one URI, Delta's own columns (`__is_cdc`) would be rescued fields,
    and rows that a rebuild is the first to emit would be missed."""
    own = connectors.DeltaTable(uri=f"{scheme}{lake.table('user_counts')}/")
    source = replace(SIGNALS, connector=own)
    for refuses in (lambda: ingest(lake, source), lambda: waiting(lake, source)):
        with refused("wrong_setting", subject=source.name) as error:
            refuses()
        assert 'StreamTable("user_counts")' in error.value.message
    monkeypatch.setenv("LAKE", lake.root)
    monkeypatch.setattr(sources, "SOURCES", (source,))
    with refused("wrong_setting", subject=source.name):  # so that it has no Dag
        source_named(source.name)
    assert not all_sources()
    others = replace(
        SIGNALS, connector=connectors.DeltaTable(uri=f"{lake.root}_of_others/tables/a")
    )
    monkeypatch.setattr(sources, "SOURCES", (others,))
    assert all_sources() == (others,)
