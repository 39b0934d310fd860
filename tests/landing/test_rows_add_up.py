"""What ingestion judged is what its tables' own logs say was written, or the run fails."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from include.lake.paths import Lake
from include.landing import bronze_commits, parsed_batch
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import files_waiting
from include.landing.parsed_batch import Parse, ParsedHere
from spark_jobs.reingest_quarantine import reingest
from spark_jobs.tables import landing as bronze
from tests.deaths import KilledError, MachineClock, die
from tests.ingested import SIGNALS, bronze_of, quarantine_of
from tests.landed_files import START, Landing, forget_finish, signal
from tests.parsers import both_parsers_at_length
from tests.refused import refused

pytestmark = pytest.mark.slow


def assert_lost(lake: Lake, parse: Parse) -> None:
    record: dict[str, Any] = {}
    with refused("rows_do_not_add_up", subject="signals"):
        ingest(lake, SIGNALS, record, parse=parse)
    assert RunCounts(**record) == RunCounts()
    assert files_waiting(lake, "signals") == 1


def lose_one_on_spark(patch: pytest.MonkeyPatch, table: str) -> None:
    whole: Callable[..., DataFrame] = getattr(bronze, f"{table}_rows")
    patch.setattr(bronze, f"{table}_rows", lambda *given: whole(*given).limit(1))


def lose_one_here(patch: pytest.MonkeyPatch) -> None:
    """Both tables get their rows by the same function."""
    whole = parsed_batch.with_all_columns

    def lose_one(rows: pa.Table, table: DeltaTable) -> pa.Table:
        return whole(rows, table).slice(1)

    for module in (parsed_batch, bronze_commits):
        patch.setattr(module, "with_all_columns", lose_one)


@both_parsers_at_length
@pytest.mark.parametrize(
    ("table", "lines"), [("bronze", [signal(0), signal(1)]), ("quarantine", ["{", "["])]
)
def test_rows_lost_on_the_way_to_a_table_stop_the_run(
    lake: Lake,
    landed: Landing,
    monkeypatch: pytest.MonkeyPatch,
    parse: Parse,
    table: str,
    lines: list[str],
):
    landed.add("a.jsonl", lines)
    with monkeypatch.context() as patch:
        lose_one_here(patch)
        lose_one_on_spark(patch, table)
        assert_lost(lake, parse)
    assert_lost(lake, parse)  # the write is skipped: it was done


@both_parsers_at_length
@pytest.mark.parametrize("left", [[signal(0)], []])
def test_a_file_that_changed_between_a_batch_and_its_repetition_stops_the_run(
    lake: Lake, landed: Landing, parse: Parse, left: list[str]
):
    lines = [signal(0), signal(1)]
    landed.add("a.jsonl", lines)
    ingest(lake, SIGNALS, parse=parse)
    forget_finish(lake)
    landed.add("a.jsonl", left)
    assert_lost(lake, parse)
    landed.add("a.jsonl", lines)  # as the message advises
    assert ingest(lake, SIGNALS, parse=parse) == RunCounts(1, 1, 2, 2, 0)


def test_a_repeated_batch_whose_commit_was_cleaned_up_is_known_by_its_transaction(
    lake: Lake, landed: Landing
):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    forget_finish(lake)
    table = DeltaTable(lake.bronze("signals"))
    for _ in range(2):
        table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.create_checkpoint()
    for version in range(table.version()):
        Path(lake.bronze("signals"), "_delta_log", f"{version:020}.json").unlink()
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 1, 1, 0)
    assert DeltaTable(lake.bronze("signals")).version() == table.version()


@pytest.mark.full
@pytest.mark.spark
def test_a_repeated_batch_is_held_against_its_own_commit(
    spark: SparkSession, lake: Lake, landed: Landing
):
    """Not against what others have committed since."""
    landed.add("a.jsonl.gz", gzip.compress(signal(0).encode())[:-5])
    ingest(lake, SIGNALS)
    landed.add("b.jsonl", [signal(0), signal(1), "{"])
    ingest(lake, SIGNALS)
    forget_finish(lake)
    landed.add("a.jsonl.gz", gzip.compress(signal(2).encode()))
    assert reingest(spark, lake, SIGNALS, {}, datetime.now(UTC)).rows_bronze == 1
    spark.sql(f"OPTIMIZE delta.`{lake.bronze('signals')}`")
    version = DeltaTable(lake.bronze("signals")).version()
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 3, 2, 1)
    assert DeltaTable(lake.bronze("signals")).version() == version


BY_HALF_AN_HOUR = replace(SIGNALS, max_future=timedelta(hours=1))
# Of the same rows it accepts as many, but others.
OTHERWISE = replace(
    SIGNALS,
    max_future=timedelta(0),
    fields=tuple(replace(f, required=f.name == "device_id") for f in SIGNALS.fields),
)
HALF_AN_HOUR, NO_VALUE = signal(1_800), signal(0, value=None)


def begin(lake: Lake, landed: Landing, patch: pytest.MonkeyPatch, dies_before: str) -> None:
    MachineClock(patch, START)
    landed.add("a.jsonl", [HALF_AN_HOUR, NO_VALUE])
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(ParsedHere, dies_before, die)
        with pytest.raises(KilledError):
            ingest(lake, BY_HALF_AN_HOUR)


def test_a_batch_that_one_table_has_is_not_repeated_by_another_entry(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    begin(lake, landed, monkeypatch, "append_refused")
    with refused("settings_changed", subject="signals"):
        ingest(lake, OTHERWISE)
    same = replace(BY_HALF_AN_HOUR, comment="Other words", commit_bytes=1, clock_grace=None)
    assert ingest(lake, same) == RunCounts(1, 1, 2, 1, 1)
    assert [row["raw"] for row in quarantine_of(lake)] == [NO_VALUE]
    landed.add("b.jsonl", [HALF_AN_HOUR, NO_VALUE])
    ingest(lake, OTHERWISE)
    assert [row["raw"] for row in quarantine_of(lake)] == [NO_VALUE, HALF_AN_HOUR]


def test_a_batch_that_no_table_has_is_judged_by_the_entry_of_today(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    begin(lake, landed, monkeypatch, "append_accepted")
    ingest(lake, OTHERWISE)
    assert [row["raw"] for row in quarantine_of(lake)] == [HALF_AN_HOUR]
    assert len(bronze_of(lake)) == 1
