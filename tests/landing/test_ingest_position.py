"""The position of ingestion: which files a batch takes, and what is still waiting."""

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.fold.admission import micros_of
from include.lake import ops
from include.lake.paths import Lake
from include.landing import arrivals
from include.landing import ingest_position as position_rows
from include.landing.arrivals import Listed
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import (
    bytes_waiting,
    files_waiting,
    finish,
    next_batch,
    read_position,
)
from include.landing.landed_content import landed_files
from tests.ingested import SIGNALS, one_file_a_commit, rows_of
from tests.landed_files import Landing, signal
from tests.open_files import no_more_files
from tests.planned import NOW, plan, take
from tests.refused import refused

NOW_US = micros_of(NOW) // 1000 * 1000
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


def test_nothing_waits_before_anything_has_landed(lake: Lake):
    assert (files_waiting(lake, "signals"), bytes_waiting(lake, "signals")) == (0, 0)
    assert read_position(lake, "signals") is None


def test_without_a_position_all_files_wait_but_hidden_ones(lake: Lake, landed: Landing):
    for name in ("a", "b/c", "_metadata_of_x", "_common_metadata", "_a=b"):
        landed.add(name, "12")
    for hidden in ("_a", ".b", "_c/d", "e/.f/g", "h._COPYING_"):
        landed.add(hidden, "12")
    names = [file.name for file in landed_files(lake, "signals")]
    assert names == ["a", "b/c", "_metadata_of_x", "_common_metadata", "_a=b"]
    assert (files_waiting(lake, "signals"), bytes_waiting(lake, "signals")) == (5, 10)


def test_the_files_of_a_batch_wait_until_it_is_done(made: Lake, landed: Landing):
    landed.add("a", "12")
    batch = plan(made)
    assert batch is not None
    landed.add("b", "3")
    assert (files_waiting(made, "signals"), bytes_waiting(made, "signals")) == (2, 3)
    finish(made, "signals", batch, 1, 0)
    assert (files_waiting(made, "signals"), bytes_waiting(made, "signals")) == (1, 1)


def test_a_planned_file_that_is_gone_still_waits_so_that_the_run_can_say_so(
    made: Lake, landed: Landing
):
    path = landed.add("gone", "")
    batch = plan(made)
    path.unlink()
    assert files_waiting(made, "signals") == 1
    assert plan(made) == batch
    finish(made, "signals", batch, 0, 0)
    assert files_waiting(made, "signals") == 0


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


def test_a_batch_is_planned_with_its_files_and_its_time_and_then_done(made: Lake, landed: Landing):
    landed.add("b", "")
    landed.add("a", "")
    batch = plan(made)
    assert batch is not None
    assert (batch.number, batch.files, batch.ingested_at_us) == (0, ("a", "b"), NOW_US)
    finish(made, "signals", batch, 5, 7)
    assert plan(made) is None
    at = {"ingested_at": NOW.replace(microsecond=1000)}
    none = {"rows_bronze": None, "rows_quarantined": None}
    files = [{"batch": 0, "source_file": name} | at | none for name in ("a", "b")]
    done = {"batch": 0, "source_file": None} | at | {"rows_bronze": 5, "rows_quarantined": 7}
    assert rows_of(made.ingested_files("signals")) == sorted([*files, done], key=str)


def test_a_batch_that_was_begun_comes_again_as_it_was(made: Lake, landed: Landing):
    landed.add("b", "")
    first = plan(made)
    landed.add("a", "")
    listed = Listed(landed_files(made, "signals"))
    later = NOW + timedelta(days=1)
    assert next_batch(made, one_file_a_commit(), listed, later) == first
    assert next_batch(made, SIGNALS, Listed([]), later) == first


def test_batches_are_numbered_one_after_the_other(made: Lake, landed: Landing):
    numbers = []
    for name in "abc":
        landed.add(name, "")
        batch = plan(made)
        assert batch is not None
        numbers.append(batch.number)
        finish(made, "signals", batch, 0, 0)
    position = read_position(made, "signals")
    assert position is not None
    assert numbers == [0, 1, 2]
    assert (position.newest, position.open, position.taken) == (2, None, {"a", "b", "c"})


def test_nothing_is_written_when_nothing_waits(made: Lake):
    assert plan(made) is None
    assert DeltaTable(made.ingested_files("signals")).version() == 0


def test_a_batch_is_done_once(made: Lake, landed: Landing):
    landed.add("a", "")
    batch = plan(made)
    assert batch is not None
    finish(made, "signals", batch, 1, 2)
    finish(made, "signals", batch, 1, 2)
    assert len(rows_of(made.ingested_files("signals"))) == 2


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


def test_a_position_that_has_no_commit_is_refused(made: Lake):
    for commit in Path(made.ingested_files("signals"), "_delta_log").glob("*.json"):
        commit.unlink()
    with refused("unreadable_table", subject="ingested_files/signals"):
        files_waiting(made, "signals")


def test_a_position_whose_rows_are_gone_is_refused(made: Lake, landed: Landing):
    landed.add("a", "")
    plan(made)
    for file in Path(made.ingested_files("signals")).glob("*.parquet"):
        file.unlink()
    with refused("unreadable_table", subject="ingested_files/signals"):
        files_waiting(made, "signals")


def test_a_position_that_the_machine_cannot_open_just_now_is_no_damage(made: Lake, landed: Landing):
    landed.add("a", "")
    plan(made)
    table = DeltaTable(made.ingested_files("signals"))
    with no_more_files(), pytest.raises(OSError, match="Too many open files"):
        position_rows._read(made.ingested_files("signals"), table)


def test_a_table_of_somebody_else_is_no_position(lake: Lake):
    write_deltalake(
        lake.ingested_files("signals"),
        pa.table({"batch": [1]}),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": "by hand"}),
    )
    with refused("unreadable_table", subject="ingested_files/signals"):
        files_waiting(lake, "signals")


def test_a_position_without_a_name_is_refused(lake: Lake):
    write_deltalake(lake.ingested_files("signals"), position_rows.SCHEMA.empty_table())
    with refused("unreadable_table", subject="ingested_files/signals"):
        files_waiting(lake, "signals")
