"""The position of ingestion: which files a batch takes, and what is still waiting."""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.lake import ops
from include.lake.paths import Lake
from include.landing import arrivals
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import (
    bytes_waiting,
    files_waiting,
    read_position,
)
from include.landing.landed_content import landed_files
from tests.ingested import SIGNALS
from tests.landed_files import Landing, signal
from tests.planned import plan, take
from tests.refused import refused

NAMES = (
    "ü",
    "a b",
    "a%20b",
    "100%",
    "#1",
    "a?b",
    "x=1/y",
    'quo"te',
    "back\\slash",
    "日本/語.jsonl",
)


# What waits


def test_without_a_position_all_files_wait_but_hidden_ones(lake: Lake, landed: Landing):
    for name in ("a", "b/c", "_metadata_of_x", "_common_metadata", "_a=b"):
        landed.add(name, "12")
    for hidden in ("_a", ".b", "_c/d", "e/.f/g", "h._COPYING_"):
        landed.add(hidden, "12")
    names = [file.name for file in landed_files(lake, "signals")]
    assert names == ["a", "b/c", "_metadata_of_x", "_common_metadata", "_a=b"]
    assert (files_waiting(lake, "signals"), bytes_waiting(lake, "signals")) == (5, 10)


def test_a_lake_can_be_given_by_a_relative_path_or_a_uri(
    made: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a", "")
    take(made)
    landed.add("b", "")
    monkeypatch.chdir(Path(made.root).parent)
    for root in (os.path.relpath(made.root), Path(made.root).as_uri()):
        assert files_waiting(Lake(root), "signals") == 1
        assert plan(Lake(root)) == plan(made)


# What a batch takes


def test_a_taken_file_is_known_by_its_name_alone(made: Lake, landed: Landing):
    landed.add("a", "1")
    take(made)
    landed.add("a", "other, and later")
    assert files_waiting(made, "signals") == 0
    assert plan(made) is None


def test_older_files_are_taken_first_and_those_of_one_instant_by_name(made: Lake, landed: Landing):
    paths = [landed.add(name, "1") for name in ("d", "b", "e/a", "c", "a")]
    for path in paths[1:4]:
        os.utime(path, (5, 5))
    taken = [take(made, commit_bytes=1) for _ in paths]
    assert taken == [("b",), ("c",), ("e/a",), ("d",), ("a",)]


def test_files_are_cut_by_their_bytes(made: Lake, landed: Landing):
    for name, size in (("a", 3), ("b", 2), ("c", 1), ("large", 9), ("empty", 0), ("d", 5)):
        landed.add(name, "x" * size)
    taken = [take(made, commit_bytes=5) for _ in range(4)]
    assert taken == [("a", "b"), ("c",), ("large",), ("d", "empty")]
    assert take(made, commit_bytes=5) == ()


def test_files_are_cut_by_their_number(
    made: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(arrivals, "FILES_A_BATCH", 2)
    for name in "abcde":
        landed.add(name, "")
    assert [take(made) for _ in range(4)] == [("a", "b"), ("c", "d"), ("e",), ()]


def test_names_of_files_are_kept_as_they_are(made: Lake, landed: Landing):
    for name in NAMES:
        landed.add(name, "")
    assert take(made) == tuple(sorted(NAMES))
    assert files_waiting(made, "signals") == 0
    assert plan(made) is None


@pytest.mark.slow
def test_a_position_of_many_commits_is_joined_and_says_the_same(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ops, "COMMITS_BETWEEN_COMPACTIONS", 4)
    for number in range(5):
        landed.add(f"{number}.jsonl", [signal(number)])
        ingest(lake, SIGNALS)
    table = DeltaTable(lake.ingested_files("signals"))
    assert len(table.file_uris()) < table.to_pyarrow_table().num_rows == 10
    position = read_position(lake, "signals")
    assert position is not None
    assert (position.newest, position.open, len(position.taken)) == (4, None, 5)
    assert ingest(lake, SIGNALS) == RunCounts()  # by no seal somebody else's


# Damage (and what seals find: test_ingest_damage.py)


def test_a_position_whose_rows_are_gone_is_refused(made: Lake, landed: Landing):
    landed.add("a", "")
    plan(made)
    for file in Path(made.ingested_files("signals")).glob("*.parquet"):
        file.unlink()
    with refused("unreadable_table", subject="ingested_files/signals"):
        files_waiting(made, "signals")
