"""The file log of a checkpoint of 0.5 after a power cut: no file that it has lost is taken twice."""

import shutil
from pathlib import Path

import pytest

from include.lake.paths import Lake, LakeError
from include.landing import spark_position
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import Batch, ensure_position, files_waiting, read_position
from tests.deaths import die
from tests.ingest_checkpoint import QUERY_ID, IngestCheckpoint, as_of_0_5
from tests.ingested import (
    SIGNALS,
    other_findings,
    quarantine_of,
    values_of,
)
from tests.landed_files import Landing, signal

pytestmark = pytest.mark.slow

NOTHING = RunCounts()


def findings(lake: Lake) -> list[tuple[str, int]]:
    return [(row["finding"], row["count"]) for row in other_findings(lake)]


def file_log(lake: Lake, offset: int) -> Path:
    return Path(lake.ingest_checkpoint("signals")) / "sources" / "0" / str(offset)


def cut_last_line(log: Path) -> None:
    """As a power cut leaves it: the last file is no longer in the log."""
    log.write_text(log.read_text().rstrip("\n").rpartition("\n")[0])


@pytest.fixture
def in_one_batch(lake: Lake) -> Landing:
    """A lake of 0.5, four files of which were ingested at once."""
    landed = Landing(lake)
    landed.add("a.jsonl", [signal(0), "{"])
    landed.add("empty.jsonl", "")
    landed.add("refused.txt", b"x")
    landed.add("z.jsonl", [signal(second, value=second) for second in range(100)])
    ingest(lake, SIGNALS)
    as_of_0_5(lake)
    return landed


def test_a_file_that_the_log_has_lost_is_not_taken_twice(lake: Lake, in_one_batch: Landing):
    before = values_of(lake), quarantine_of(lake)
    for _ in range(3):  # of z.jsonl, refused.txt, empty.jsonl
        cut_last_line(file_log(lake, 0))
    assert files_waiting(lake, "signals") == 3
    in_one_batch.add("new.jsonl", [signal(7)])

    assert ingest(lake, SIGNALS) == RunCounts(1, 2, 1, 1, 0)  # the empty one, and the new

    assert values_of(lake) == sorted([*before[0], ("new.jsonl", 10)])
    assert quarantine_of(lake) == before[1]
    assert files_waiting(lake, "signals") == 0
    assert ingest(lake, SIGNALS) == NOTHING
    (found,) = other_findings(lake)
    known = found["finding"], found["severity"], found["count"]
    assert known == ("file_log_damaged", "warning", 2)
    assert "refused.txt, z.jsonl" in found["detail"]


def test_a_lake_of_before_the_seals_is_looked_through(lake: Lake, in_one_batch: Landing):
    shutil.rmtree(lake.ops("tables"))
    cut_last_line(file_log(lake, 0))
    in_one_batch.add("c.jsonl", [signal(2)])
    assert ingest(lake, SIGNALS).files_landed == 1
    assert len(values_of(lake)) == 102
    assert findings(lake) == [("file_log_damaged", 1)]


def test_a_log_that_fits_its_seal_is_believed_and_no_table_is_read(
    lake: Lake, in_one_batch: Landing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(spark_position, "taken_files", die)
    assert ingest(lake, SIGNALS) == NOTHING
    assert findings(lake) == []


def test_files_that_0_5_knew_to_be_lost_are_not_taken(lake: Lake):
    for name in ("a.jsonl", "b.jsonl"):
        Landing(lake).add(name, [signal(0)])
        ingest(lake, SIGNALS)
    checkpoint = as_of_0_5(lake)
    cut_last_line(file_log(lake, 1))
    checkpoint.seal(["a.jsonl"], offset=1, lost=["b.jsonl"])
    assert ingest(lake, SIGNALS) == NOTHING
    assert findings(lake) == []
    assert files_waiting(lake, "signals") == 0


def test_a_seal_of_another_checkpoint_says_nothing(lake: Lake, in_one_batch: Landing):
    before = values_of(lake)
    cut_last_line(file_log(lake, 0))
    shutil.move(lake.ingest_checkpoint("signals"), f"{lake.root}/kept")
    other = IngestCheckpoint(lake, "another")
    other.seal(["a.jsonl"], offset=0)
    shutil.rmtree(other.folder)
    shutil.move(f"{lake.root}/kept", other.folder)
    assert ingest(lake, SIGNALS) == NOTHING
    assert values_of(lake) == before
    assert findings(lake) == [("file_log_damaged", 1)]


def test_a_line_that_is_cut_in_the_middle_says_how_to_mend_it(lake: Lake, in_one_batch: Landing):
    before = values_of(lake)
    log = file_log(lake, 0)
    log.write_text(log.read_text()[:-9])
    with pytest.raises(LakeError, match=r"a line of .*/sources/0/0 is cut off .* delete that line"):
        ingest(lake, SIGNALS)
    cut_last_line(log)
    assert ingest(lake, SIGNALS) == NOTHING
    assert values_of(lake) == before


def test_a_batch_of_which_the_tables_have_every_file_is_done(lake: Lake):
    checkpoint = IngestCheckpoint(lake)
    checkpoint.log("0", {"a.jsonl": 0})
    checkpoint.plan(0, 0)
    ensure_position(lake, "signals", frozenset({"a.jsonl"}))
    position = read_position(lake, "signals")
    assert position is not None
    assert (position.newest, position.open, position.taken) == (0, None, {"a.jsonl"})


def test_a_batch_that_was_begun_goes_on_without_its_lost_files(lake: Lake):
    checkpoint = IngestCheckpoint(lake)
    checkpoint.log("0", {"a.jsonl": 0, "b.jsonl": 0})
    checkpoint.plan(0, 0)
    ensure_position(lake, "signals", frozenset({"a.jsonl"}))
    position = read_position(lake, "signals")
    assert position is not None
    assert position.open == Batch(QUERY_ID, 0, ("b.jsonl",), 1_000_000)
    assert position.taken == {"a.jsonl"}
