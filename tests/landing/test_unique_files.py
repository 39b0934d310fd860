"""Files that land again with the same content are taken once, and it is said of which they are copies."""

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing import position_rows, unique_files
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import files_waiting, read_position
from include.landing.ingest_seal import REINGESTED_KEY
from include.landing.parse_files import quarantine_id
from include.landing.parsed_batch import Parse
from include.landing.unique_files import copies_of_mended, ensure_hashes
from include.origins import DeltaTable as Origin
from include.settings import Csv, Field, SettingsError
from spark_jobs.reingest_quarantine import reingest
from tests.deaths import Dying, KilledError, MachineClock
from tests.examples import examples
from tests.ingested import SIGNALS, bronze_of, one_file_a_commit, quarantine_of, rows_of, values_of
from tests.landed_files import Landing, forget_finish, signal
from tests.parsers import both_parsers

pytestmark = pytest.mark.slow

UNIQUE = replace(SIGNALS, unique_files=True)
NOW = datetime(2100, 1, 1, tzinfo=UTC)


def taken(lake: Lake) -> dict[str, str | None]:
    """The files that ingestion knows, and of which each is a copy."""
    rows = rows_of(lake.ingested_files("signals"))
    return {row["source_file"]: row["copy_of"] for row in rows if row["source_file"]}


def names_in_bronze(lake: Lake) -> list[str]:
    return sorted(row["source_file"] for row in bronze_of(lake) if not row["is_clock"])


@both_parsers
def test_a_file_that_lands_again_gives_no_rows_and_stops_nothing(
    lake: Lake, landed: Landing, parse: Parse
):
    path = landed.add("b.jsonl", [signal(0), "{"])
    landed.add("a.jsonl", [signal(0), "{"])  # of one batch: the older is taken
    landed.add("other.jsonl", [signal(1)])
    counts = ingest(lake, UNIQUE, parse=parse)
    assert (counts.files_landed, counts.files_duplicate, counts.rows_landed) == (2, 1, 3)
    assert ingest(lake, UNIQUE, parse=parse) == RunCounts()

    path.unlink()  # as producers clean up
    landed.add("again/c.jsonl", [signal(0), "{"])
    assert ingest(lake, UNIQUE, parse=parse) == RunCounts(batches=1, files_duplicate=1)

    assert names_in_bronze(lake) == ["b.jsonl", "other.jsonl"]
    assert [row["source_file"] for row in quarantine_of(lake)] == ["b.jsonl"]
    copies = {"a.jsonl": "b.jsonl", "again/c.jsonl": "b.jsonl"}
    assert taken(lake) == copies | {"b.jsonl": None, "other.jsonl": None}
    assert files_waiting(lake, "signals") == 0
    found = read_ops(lake, "findings", {"finding": "files_duplicate"}).to_pylist()
    assert [(each["count"], each["severity"]) for each in found] == [(1, "info")] * 2
    assert any("again/c.jsonl (of b.jsonl)" in each["detail"] for each in found)


def test_the_hash_is_that_of_the_bytes_and_read_in_pieces(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(unique_files, "PIECE", 7)
    path = landed.add("a.jsonl", [signal(0), signal(1)])
    ingest(lake, UNIQUE)
    hashes = {row["content_hash"] for row in rows_of(lake.ingested_files("signals"))}
    assert hashes == {None, hashlib.sha256(path.read_bytes()).hexdigest()}


def test_without_it_nothing_changes(lake: Lake, landed: Landing):
    for name in "ab":
        landed.add(f"{name}.jsonl", [signal(0)])
    assert ingest(lake, SIGNALS) == RunCounts(1, 2, 2, 2, 0)
    known = [field.name for field in DeltaTable(lake.ingested_files("signals")).schema().fields]
    assert known == [column.name for column in position_rows.COLUMNS]


def test_it_may_be_turned_on_and_off_and_knows_what_was_taken_while_it_was_on(
    lake: Lake, landed: Landing
):
    landed.add("before.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    landed.add("first.jsonl", [signal(0)])
    assert ingest(lake, UNIQUE).rows_bronze == 1  # what was taken before has no hash
    landed.add("off.jsonl", [signal(0)])
    landed.add("off too.jsonl", [signal(1)])
    assert ingest(lake, SIGNALS).rows_bronze == 2
    landed.add("on.jsonl", [signal(0)])
    landed.add("on too.jsonl", [signal(1)])
    counts = ingest(lake, UNIQUE)
    assert (counts.files_duplicate, counts.rows_bronze) == (1, 1)
    assert taken(lake)["on.jsonl"] == "first.jsonl"


def test_what_was_begun_without_it_is_finished(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    forget_finish(lake)
    landed.add("b.jsonl", [signal(0)])
    assert ingest(lake, UNIQUE).rows_bronze == 2
    position = read_position(lake, "signals")
    assert position is not None
    assert list(position.contents.values()) == [("b.jsonl",)]


def test_the_same_bytes_that_are_read_otherwise_are_no_copy(lake: Lake, landed: Landing):
    day = Field(name="day", type="date", path="dt", from_folder=True, comment="Day")
    source = replace(UNIQUE, fields=(*SIGNALS.fields, day))
    for name in ("dt=2026-03-01/a", "dt=2026-03-02/a", "x/dt=2026-03-01/b"):
        landed.add(f"{name}.jsonl", [signal(0)])
    landed.add("dt=2026-03-01/a.txt", [signal(0)])  # refused: it is read by no format
    landed.add("dt=2026-03-01/a.ndjson", [signal(0)])
    counts = ingest(lake, source)
    assert (counts.files_duplicate, counts.rows_bronze, counts.rows_quarantined) == (2, 2, 1)
    assert sorted(str(row["day"]) for row in bronze_of(lake)) == ["2026-03-01", "2026-03-02"]


def test_what_was_refused_as_a_whole_may_come_under_another_name(lake: Lake, landed: Landing):
    text = "device_id;timestamp;value\n1;2026-03-01T00:00:00Z;7\n"
    landed.add("a.csv", text)
    ingest(lake, UNIQUE)
    assert [row["row_number"] for row in quarantine_of(lake)] == [0]
    landed.add("b.csv", text)
    landed.add("c.csv", text)
    counts = ingest(lake, replace(UNIQUE, csv=Csv(delimiter=";")))
    assert (counts.rows_bronze, counts.files_duplicate) == (1, 1)
    assert taken(lake)["c.csv"] == "b.csv"


def test_a_file_without_permission_or_that_is_gone_has_no_hash(lake: Lake, landed: Landing):
    class Closed:
        def open_input_file(self, path: str) -> None:
            raise PermissionError if "a" in Path(path).name else FileNotFoundError

    shut: Any = SimpleNamespace(filesystem=Closed())
    assert [unique_files._hash_of(shut, "/r", name) for name in ("a", "b")] == [None, None]


@pytest.mark.parametrize("first", ["[1, 2", [signal(0)]], ids=["broken", "whole"])
def test_a_file_that_is_another_than_planned_is_not_taken_under_the_hash_of_the_former(
    lake: Lake, landed: Landing, first: str | list[str]
):
    """Else a copy of what it has become would be taken once more."""
    landed.add("a.jsonl", first)
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        Dying(patch, 2)  # the batch is planned
        ingest(lake, UNIQUE)
    landed.add("a.jsonl", [signal(0), signal(1)])
    ingest(lake, UNIQUE)
    landed.add("copy.jsonl", [signal(0), signal(1)])
    ingest(lake, UNIQUE)
    assert names_in_bronze(lake) == ["copy.jsonl", "copy.jsonl"]
    assert [(row["source_file"], row["row_number"]) for row in quarantine_of(lake)] == [
        ("a.jsonl", 0)
    ]
    assert copies_of_mended(lake, UNIQUE, NOW) == {"a.jsonl": "copy.jsonl"}


def test_copies_of_a_file_that_is_another_than_planned_are_named(lake: Lake, landed: Landing):
    """They were planned as copies of what nobody has taken."""
    landed.add("a.jsonl", [signal(0)])
    landed.add("b.jsonl", [signal(0)])
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        Dying(patch, 2)  # the batch is planned
        ingest(lake, UNIQUE)
    landed.add("a.jsonl", [signal(1)])
    ingest(lake, UNIQUE)
    told = read_ops(lake, "findings", {"finding": "copies_not_taken"}).to_pylist()
    assert ["b.jsonl (of a.jsonl)" in row["detail"] for row in told] == [True]
    landed.add("c.jsonl", [signal(0)])  # as the finding says
    ingest(lake, UNIQUE)
    assert names_in_bronze(lake) == ["c.jsonl"]


def test_a_file_that_could_not_be_read_when_it_was_planned_is_not_taken_without_a_hash(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    """Such as one that was written to: without a hash, its copies would be taken once more."""
    landed.add("a.jsonl", [signal(0)])
    landed.add("b.jsonl", [signal(1)])
    whole = unique_files.hashes_of
    monkeypatch.setattr(
        unique_files, "hashes_of", lambda lake, source, names: whole(lake, source, ["b.jsonl"])
    )
    ingest(lake, UNIQUE)
    monkeypatch.undo()
    landed.add("copy.jsonl", [signal(0)])
    ingest(lake, UNIQUE)
    assert names_in_bronze(lake) == ["b.jsonl", "copy.jsonl"]


@pytest.mark.spark
def test_a_mended_file_is_taken_in_again_unless_another_has_its_content(
    spark: SparkSession, lake: Lake, landed: Landing
):
    for name in ("copy", "mended", "mended2"):
        landed.add(f"{name}.jsonl", "[1, 2" + name)  # unreadable as a whole
    landed.add("b.jsonl", [signal(0)])
    assert ingest(lake, UNIQUE).rows_quarantined == 3
    landed.add("copy.jsonl", [signal(0)])
    for name in ("mended", "mended2"):
        landed.add(f"{name}.jsonl", [signal(1), signal(2)])
    counts = reingest(spark, lake, UNIQUE, {}, datetime.now(UTC))
    assert (counts.rows_bronze, counts.files_duplicate) == (2, 2)
    assert all(row["resolved_at"] for row in quarantine_of(lake))
    assert sorted(row["source_file"].split("#")[0] for row in bronze_of(lake)) == [
        "b.jsonl", "mended.jsonl", "mended.jsonl"
    ]  # fmt: skip

    landed.add("c.jsonl", [signal(1), signal(2)])
    landed.add("d.jsonl", "[1, 2mended")  # what it was before
    counts = ingest(lake, UNIQUE)
    assert (counts.files_duplicate, counts.rows_quarantined) == (1, 1)
    assert taken(lake)["c.jsonl"] == "mended.jsonl"
    assert reingest(spark, lake, UNIQUE, {}, datetime.now(UTC)) == RunCounts()


def test_a_mended_file_is_a_copy_of_one_in_a_batch_that_was_begun(lake: Lake, landed: Landing):
    landed.add("mended.jsonl", "[1, 2")
    ingest(lake, UNIQUE)
    landed.add("b.jsonl", [signal(0)])
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        Dying(patch, 3)
        ingest(lake, UNIQUE)
    assert names_in_bronze(lake) == ["b.jsonl"]
    landed.add("mended.jsonl", [signal(0)])
    assert copies_of_mended(lake, UNIQUE, NOW) == {"mended.jsonl": "b.jsonl"}
    ingest(lake, UNIQUE)
    assert copies_of_mended(lake, UNIQUE, NOW) == {"mended.jsonl": "b.jsonl"}


@pytest.mark.parametrize("days_ahead", [0, 400])
def test_what_a_reingestion_that_died_has_taken_has_copies(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch, days_ahead: int
):
    """It writes to bronze first, and last to quarantine. `days_ahead`: the clock of the first run."""
    landed.add("mended.jsonl", "[1, 2")
    landed.add("b.jsonl", [signal(0)])
    machine = MachineClock(monkeypatch, NOW + timedelta(days=days_ahead))
    ingest(lake, UNIQUE)
    machine.time = NOW
    landed.add("mended.jsonl", [signal(1)])
    assert copies_of_mended(lake, UNIQUE, NOW) == {}
    rows = DeltaTable(lake.bronze("signals")).to_pyarrow_table()
    tagged = f"mended.jsonl#{quarantine_id('mended.jsonl', 1)}"
    rows = rows.set_column(rows.schema.get_field_index("source_file"), "source_file", [[tagged]])
    ours = CommitProperties(custom_metadata={"userMetadata": json.dumps({REINGESTED_KEY: 1})})
    write_deltalake(lake.bronze("signals"), rows, mode="append", commit_properties=ours)
    landed.add("c.jsonl", [signal(1)])
    assert ingest(lake, UNIQUE).files_duplicate == 1
    assert taken(lake)["c.jsonl"] == "mended.jsonl"


def test_a_file_of_an_earlier_release_that_is_mended_has_copies(lake: Lake, landed: Landing):
    """Its row of then has no time."""
    landed.add("mended.jsonl", "[1, 2")
    ingest(lake, SIGNALS)
    table = DeltaTable(lake.ingested_files("signals"))
    table.update({"ingested_at": "NULL"})
    ensure_hashes(lake, "signals")
    landed.add("mended.jsonl", [signal(0)])
    assert copies_of_mended(lake, UNIQUE, NOW) == {}
    position = read_position(lake, "signals")
    assert position is not None
    assert list(position.contents.values()) == [("mended.jsonl",)]


def test_it_is_for_landed_files_alone():
    with pytest.raises(SettingsError, match="unique_files is for files in landing"):
        replace(UNIQUE, origin=Origin(uri="/x"))


contents = st.integers(0, 3)
runs = st.lists(
    st.tuples(st.lists(contents, max_size=4), st.booleans(), st.none() | st.integers(0, 12)),
    min_size=1,
    max_size=5,
)


@examples(20)
@given(runs)
def test_each_content_is_taken_once_wherever_runs_die_and_however_they_are_cut(runs: list[Any]):
    with TemporaryDirectory() as root:
        lake = Lake(root)
        landing, landed = Landing(lake), list[tuple[str, int]]()
        for names, is_cut, dies_at in [*runs, ([], False, None)]:
            for content in names:
                landed.append((f"{9 - len(landed) % 10}/{len(landed)}.jsonl", content))
                landing.add(landed[-1][0], [signal(content, value=content), "{"])
            source = one_file_a_commit(UNIQUE) if is_cut else UNIQUE
            with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
                if dies_at is not None:
                    Dying(patch, dies_at)
                ingest(lake, source)
        firsts = {content: name for name, content in reversed(landed)}  # the oldest of each
        assert values_of(lake) == sorted((name, value) for value, name in firsts.items())
        assert sorted(row["source_file"] for row in quarantine_of(lake)) == sorted(firsts.values())
        if landed:
            copies = {n: firsts[c] if firsts[c] != n else None for n, c in landed}
            assert taken(lake) == copies
