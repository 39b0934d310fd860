"""The ingest checkpoint's file log after a power cut: no file that it has lost is taken twice."""

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError
from include.lake.table_seal import read_seal
from include.landing.file_log_seal import check_file_log, taken_files
from include.landing.position import files_waiting
from spark_jobs import ingest_source
from spark_jobs.ingest_source import RunCounts, ingest
from tests.ingested import SIGNALS, one_file_a_commit, quarantine_of, values_of
from tests.landed_files import Landing, forget_commit, signal

pytestmark = pytest.mark.spark


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


def file_log(lake: Lake, offset: int) -> Path:
    return Path(lake.ingest_checkpoint("signals")) / "sources" / "0" / str(offset)


def cut_last_line(log: Path) -> None:
    """As a power cut leaves it: the last file is no longer in the log."""
    log.write_text(log.read_text().rstrip("\n").rpartition("\n")[0])
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)


def test_a_file_that_the_log_has_lost_is_not_taken_twice(
    spark: SparkSession, lake: Lake, landed: Landing
):
    landed.add("a.jsonl", [signal(0), "{"])
    landed.add("empty.jsonl", "")
    landed.add("refused.txt", b"x")
    landed.add("z.jsonl", [signal(second, value=second) for second in range(100)])
    ingest(spark, lake, SIGNALS)
    before = values_of(spark, lake), quarantine_of(spark, lake).count()
    for _ in range(3):  # of z.jsonl, refused.txt, empty.jsonl
        cut_last_line(file_log(lake, 0))
    assert files_waiting(lake, "signals") == 3
    landed.add("new.jsonl", [signal(7)])

    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 2, 1, 1, 0)  # the empty one, and the new

    assert values_of(spark, lake) == sorted([*before[0], ("new.jsonl", 10)])
    assert quarantine_of(spark, lake).count() == before[1]
    assert files_waiting(lake, "signals") == 0
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["severity"], found["count"]) == (
        "file_log_damaged",
        "warning",
        2,
    )
    assert "refused.txt, z.jsonl" in found["detail"]
    assert ingest(spark, lake, SIGNALS) == RunCounts()
    assert read_ops(lake, "findings").num_rows == 1


def test_a_lake_of_before_the_seals_is_looked_through_once(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0)])
    landed.add("b.jsonl", [signal(1)])
    ingest(spark, lake, SIGNALS)
    shutil.rmtree(lake.ops("tables"))
    cut_last_line(file_log(lake, 0))
    landed.add("c.jsonl", [signal(2)])
    assert ingest(spark, lake, SIGNALS).files_landed == 1
    assert [name for name, _ in values_of(spark, lake)] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    monkeypatch.setattr("include.landing.file_log_seal.taken_files", None)
    assert check_file_log(lake, "signals") == (frozenset({"b.jsonl"}), [])


@pytest.mark.full
def test_a_death_after_the_repair_takes_nothing_twice_either(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0)])
    landed.add("b.jsonl", [signal(1)])
    ingest(spark, lake, SIGNALS)
    cut_last_line(file_log(lake, 0))
    landed.add("c.jsonl", [signal(2)])

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    for place in ("parse_batch", "seal_file_log"):  # before and after the batch's commit
        with monkeypatch.context() as patch:
            patch.setattr(ingest_source, place, die)
            with pytest.raises(StreamingQueryException, match="killed"):
                ingest(spark, lake, SIGNALS)
    ingest(spark, lake, SIGNALS)
    forget_commit(lake, 1)
    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 1, 1, 0)
    assert [name for name, _ in values_of(spark, lake)] == ["a.jsonl", "b.jsonl", "c.jsonl"]


def test_a_line_that_is_cut_in_the_middle_says_how_to_mend_it(
    spark: SparkSession, lake: Lake, landed: Landing
):
    landed.add("a.jsonl", [signal(0)])
    landed.add("b.jsonl", [signal(1)])
    ingest(spark, lake, SIGNALS)
    log = file_log(lake, 0)
    log.write_text(log.read_text()[:-9])
    with pytest.raises(LakeError, match=r"a line of .*/sources/0/0 is cut off .* delete that line"):
        ingest(spark, lake, SIGNALS)
    cut_last_line(log)
    assert ingest(spark, lake, SIGNALS).rows_landed == 0
    assert len(values_of(spark, lake)) == 2


@pytest.mark.full
def test_a_compacted_log_is_still_the_same(spark: SparkSession, lake: Lake, landed: Landing):
    for number in range(12):
        landed.add(f"{number}.jsonl", [signal(number)])
    ingest(spark, lake, one_file_a_commit())
    assert file_log(lake, 9).with_name("9.compact").exists()
    landed.add("x.jsonl", [signal(1)])
    ingest(spark, lake, SIGNALS)
    assert read_ops(lake, "findings").num_rows == 0
    row = read_seal(lake, "checkpoints/ingest/signals")
    assert row is not None
    assert (row["rows"], row["version"]) == (13, 12)
    assert len(taken_files(lake, "signals")) == 13
