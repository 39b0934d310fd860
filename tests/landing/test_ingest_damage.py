"""Ingestion into tables that a power cut, a wrong copy or another writer has changed."""

import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from include.care.plan_care import spark_tables_named
from include.lake import table_seal
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError
from include.lake.table_seal import read_seal
from include.landing import ingest_seal
from include.landing.clock import why_not_ingest
from include.landing.clock_row import write_still_row
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_seal import tables_of
from include.limits import TableCare
from spark_jobs.maintain_table import maintain
from spark_jobs.reingest_quarantine import reingest
from tests.ingested import SIGNALS, bronze_of, one_file_a_commit, quarantine_of, values_of
from tests.landed_files import Landing, signal
from tests.refused import refused
from tests.simulator.damage import append_again

pytestmark = pytest.mark.slow

TABLES = tables_of("signals")
POSITION = TABLES[-1]


def reason(lake: Lake) -> str | None:
    return why_not_ingest(lake, SIGNALS, None, datetime.now(UTC))


def ingest_runs(lake: Lake, landed: Landing, runs: range) -> None:
    for number in runs:
        landed.add(f"{number}.jsonl", [signal(number), "{"])
        ingest(lake, SIGNALS)


def version_of(lake: Lake, table: str) -> int:
    return DeltaTable(f"{lake.root}/{table}").version()


@pytest.mark.parametrize("deleted_behind_judgement", [1, 2, 3])
def test_what_others_change_between_judgement_and_seal_is_found_by_the_next_run(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch, deleted_behind_judgement: int
):
    ingest_runs(lake, landed, range(2))
    landed.add("2.jsonl", [signal(2)])
    judge, judged = table_seal.first_change, 0

    def and_then_others(*tables: Any) -> str | None:
        nonlocal judged
        changed, judged = judge(*tables), judged + 1
        if judged == deleted_behind_judgement:
            bronze = DeltaTable(lake.bronze("signals"))
            bronze.alter.set_table_properties({"delta.appendOnly": "false"})
            bronze.delete("source_file = '0.jsonl'")
        return changed

    monkeypatch.setattr(ingest_seal, "first_change", and_then_others)
    monkeypatch.setattr(table_seal, "first_change", and_then_others)
    with suppress(LakeError):
        ingest(lake, SIGNALS)
    monkeypatch.undo()
    assert judged >= deleted_behind_judgement
    assert "0.jsonl" not in {row["source_file"] for row in bronze_of(lake)}
    assert ingest_seal.how_tables_changed(lake, "signals")


@pytest.mark.parametrize("table", TABLES)
def test_an_older_copy_of_a_table_is_refused(lake: Lake, landed: Landing, table: str):
    path = Path(lake.root, table)
    ingest_runs(lake, landed, range(1))
    copy = shutil.copytree(path, path.with_name("copy"))
    ingest_runs(lake, landed, range(1, 3))
    assert reason(lake) is not None
    whole = path.rename(path.with_name("whole"))
    copy.rename(path)
    assert reason(lake) is None  # also when nothing has landed
    with refused("of_other_times", subject="signals"):
        ingest(lake, SIGNALS)
    shutil.rmtree(path)
    whole.rename(path)
    assert reason(lake) is not None
    landed.add("3.jsonl", [signal(3)])
    assert ingest(lake, SIGNALS).rows_bronze == 1


def test_a_dag_runs_ingestion_into_a_log_that_cannot_be_read_or_says_so(
    lake: Lake, landed: Landing
):
    ingest_runs(lake, landed, range(1))
    for table in TABLES:
        newest = version_of(lake, table)
        commit = Path(lake.root, table, "_delta_log", f"{newest:020}.json")
        whole = commit.read_text()
        commit.write_text('{"commitInfo":')
        if table == POSITION:
            with refused("unreadable_table"):
                reason(lake)
        else:
            assert reason(lake) is None
        commit.write_text(whole)


@pytest.mark.parametrize("table", TABLES)
def test_rows_that_somebody_else_appended_are_refused(lake: Lake, landed: Landing, table: str):
    ingest_runs(lake, landed, range(1))
    assert append_again(Path(lake.root, table))
    with refused("of_other_times", subject="signals"):
        ingest(lake, SIGNALS)


def test_all_commits_of_ours_are_known_without_a_seal(lake: Lake, landed: Landing):
    """A job may die between any of its commits and the seal."""
    clocked = replace(SIGNALS, clock_grace=timedelta(0))
    ingest_runs(lake, landed, range(1))
    copy = kept_seals(lake)
    landed.add("b.jsonl", [signal(1), "{"])
    ingest(lake, clocked)  # a batch, and a clock row
    write_still_row(lake, SIGNALS)
    put_back(lake, copy)
    assert reason(lake) is not None
    assert ingest(lake, SIGNALS) == RunCounts()
    sealed = {row["table"]: row["version"] for row in read_ops(lake, "tables").to_pylist()}
    assert sealed == {table: version_of(lake, table) for table in TABLES}
    assert sealed["bronze/signals"] == 4


def kept_seals(lake: Lake) -> Path:
    return Path(shutil.copytree(lake.ops("tables"), f"{lake.root}/kept"))


def put_back(lake: Lake, copy: Path) -> None:
    shutil.rmtree(lake.ops("tables"))
    copy.rename(lake.ops("tables"))


@pytest.mark.full
@pytest.mark.spark
def test_a_re_ingestion_knows_an_older_copy_and_its_commits_are_known(
    spark: SparkSession, lake: Lake, landed: Landing
):
    ingest_runs(lake, landed, range(1))
    copy = kept_seals(lake)
    (row,) = quarantine_of(lake)
    reingest(spark, lake, SIGNALS, {row["quarantine_id"]: signal(2)}, datetime.now(UTC))
    put_back(lake, copy)
    assert ingest(lake, SIGNALS) == RunCounts()
    shutil.rmtree(lake.quarantine("signals"))
    with refused("of_other_times", subject="signals"):
        reingest(spark, lake, SIGNALS, {}, datetime.now(UTC))


def move_away(lake: Lake) -> None:
    for table in TABLES:
        Path(lake.root, table).rename(f"{lake.root}/{table}-away")


def test_a_source_can_be_ingested_anew(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(lake, SIGNALS)
    before = values_of(lake)
    move_away(lake)
    assert reason(lake) is None
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    assert values_of(lake) == before
    assert reason(lake) is not None
    assert ingest(lake, SIGNALS) == RunCounts()


@pytest.mark.e2e
@pytest.mark.spark
def test_the_care_of_a_table_seals_it_and_hides_no_change(
    spark: SparkSession, lake: Lake, landed: Landing
):
    for number in range(3):
        landed.add(f"{number}.jsonl", [signal(number)])
    ingest(lake, one_file_a_commit())
    tables = spark_tables_named(lake, ["bronze/signals"])
    care = TableCare(min_small_files=2)
    maintain(spark, lake, tables, care)
    version = DeltaTable(lake.bronze("signals")).version()
    assert version == 4  # an OPTIMIZE
    assert sealed_version(lake) == version
    landed.add("3.jsonl", [signal(3)])
    ingest(lake, SIGNALS)
    append_again(Path(lake.bronze("signals")))
    maintain(spark, lake, tables, care)
    assert DeltaTable(lake.bronze("signals")).version() > version + 2
    assert sealed_version(lake) == version + 1
    with refused("of_other_times", subject="signals"):
        ingest(lake, SIGNALS)


def sealed_version(lake: Lake) -> int:
    row = read_seal(lake, "bronze/signals")
    assert row is not None
    return int(row["version"])
