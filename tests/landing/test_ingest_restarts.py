"""The ingest job again: after a death, in other cuts, with a checkpoint or a lake that is not its own."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake.paths import Lake, LakeError
from include.landing.position import files_waiting
from spark_jobs import ingest_source
from spark_jobs.ingest_source import RunCounts, ingest
from spark_jobs.tables import bronze
from tests.ingested import SIGNALS, bronze_of, events_of, one_file_a_commit, quarantine_of
from tests.landed_files import Landing, forget_commit, signal

pytestmark = pytest.mark.spark


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


class KillError(Exception):
    """Stands for the death of the process."""


def test_a_death_between_the_two_commits_is_made_good_by_the_next_run(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0), "{", signal(1)])

    def die(*_: object) -> DataFrame:
        raise KillError

    with monkeypatch.context() as patch:
        patch.setattr(bronze, "quarantine_rows", die)
        record: dict[str, Any] = {}
        with pytest.raises(StreamingQueryException, match="KillError"):
            ingest(spark, lake, SIGNALS, record)
    assert RunCounts(**record) == RunCounts()
    first = bronze_of(spark, lake).collect()
    assert len(first) == 2
    assert files_waiting(lake, "signals") == 1

    assert ingest(spark, lake, SIGNALS) == RunCounts(1, 1, 3, 2, 1)
    assert sorted(bronze_of(spark, lake).collect()) == sorted(first)
    refused = quarantine_of(spark, lake).collect()
    assert [row.reason_code for row in refused] == ["not_json"]
    assert refused[0].ingested_at == first[0].ingested_at
    assert files_waiting(lake, "signals") == 0


def test_a_death_before_the_batch_is_committed_writes_nothing_twice(
    spark: SparkSession, lake: Lake, landed: Landing
):
    landed.add("a.jsonl", [signal(0), "{"])
    landed.add("b.jsonl", [signal(1), "{"])
    ingest(spark, lake, one_file_a_commit())
    tables = bronze_of(spark, lake).collect(), quarantine_of(spark, lake).collect()
    forget_commit(lake, 1)
    assert files_waiting(lake, "signals") == 1

    assert ingest(spark, lake, one_file_a_commit()) == RunCounts(1, 1, 2, 1, 1)
    again = bronze_of(spark, lake).collect(), quarantine_of(spark, lake).collect()
    assert [sorted(rows, key=str) for rows in again] == [sorted(rows, key=str) for rows in tables]


def test_a_repeated_batch_keeps_its_ingestion_time(
    spark: SparkSession, lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    """A row that was refused for being in the future stays refused, or it would be lost."""
    landed.add("a.jsonl", [signal(0)])
    seen: list[int] = []
    parse_batch = ingest_source.parse_batch

    def remember(*given: Any) -> DataFrame:
        seen.append(given[-1].ingested_at_us)
        return parse_batch(*given)

    monkeypatch.setattr(ingest_source, "parse_batch", remember)
    ingest(spark, lake, SIGNALS)
    forget_commit(lake, 0)
    ingest(spark, lake, SIGNALS)
    stored = bronze_of(spark, lake).select(F.unix_micros("ingested_at")).collect()
    assert seen == [stored[0][0]] * 2


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(1, marks=pytest.mark.full),
        pytest.param(3, marks=pytest.mark.e2e),
        pytest.param(10, marks=pytest.mark.full),
    ],
)
def test_any_cut_into_runs_gives_the_same_events(
    spark: SparkSession, lake: Lake, landed: Landing, runs: int
):
    rng = random.Random(1)
    files = [
        [signal(rng.uniform(0, 90_000), rng.randrange(5)) for _ in range(4)] for _ in range(10)
    ]
    total = RunCounts()
    for run in range(runs):
        for number in range(run * 10 // runs, (run + 1) * 10 // runs):
            landed.add(f"{number}.jsonl", [*files[number], "{"])
        total += ingest(spark, lake, SIGNALS)
    assert total == RunCounts(runs, 10, 50, 40, 10)
    assert files_waiting(lake, "signals") == 0
    expected = sorted(
        (
            row["device_id"],
            row["value"],
            datetime.fromisoformat(row["timestamp"]),
            f"{number}.jsonl",
        )
        for number, lines in enumerate(files)
        for row in map(json.loads, lines)
    )
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert events_of(spark, lake) == sorted(
        (device, value, (time - epoch) // timedelta(microseconds=1), time.date(), name)
        for device, value, time, name in expected
    )


def test_a_new_checkpoint_under_old_tables_is_refused(
    spark: SparkSession, lake: Lake, landed: Landing
):
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, SIGNALS)
    checkpoint = Path(lake.ingest_checkpoint("signals"))
    kept = checkpoint.rename(checkpoint.with_name("kept"))
    with pytest.raises(LakeError, match=r"the ingest checkpoint .* is missing"):
        ingest(spark, lake, SIGNALS)
    kept.rename(checkpoint)
    Path(lake.bronze("signals")).rename(checkpoint.with_name("bronze"))
    with pytest.raises(LakeError, match=r"bronze/signals is missing"):
        ingest(spark, lake, SIGNALS)


def test_an_old_copy_of_the_checkpoint_is_refused(spark: SparkSession, lake: Lake, landed: Landing):
    for name in ("a", "b"):
        landed.add(f"{name}.jsonl", [signal(0)])
        ingest(spark, lake, SIGNALS)
    forget_commit(lake, 1)
    (Path(lake.ingest_checkpoint("signals")) / "offsets" / "1").unlink()
    with pytest.raises(LakeError, match="an old copy"):
        ingest(spark, lake, SIGNALS)


def test_a_moved_lake_is_refused(spark: SparkSession, lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0)])
    ingest(spark, lake, SIGNALS)
    moved = Path(lake.root).rename(Path(lake.root).with_name("moved"))
    with pytest.raises(LakeError, match="Move it back"):
        ingest(spark, Lake(str(moved)), SIGNALS)


def test_a_lake_may_have_any_name(spark: SparkSession, tmp_path: Path):
    lake = Lake(str(tmp_path / "a [b] {c,d} é"))
    Landing(lake).add("x.jsonl", [signal(0)])
    assert files_waiting(lake, "signals") == 1
    assert ingest(spark, lake, SIGNALS).rows_bronze == 1
    assert files_waiting(lake, "signals") == 0
