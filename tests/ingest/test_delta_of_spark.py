"""A table that Spark writes, with deletion vectors: its appends are taken, and no deleted row is."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from include.connectors import DeltaTable
from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.lake.paths import Lake
from include.settings import Source
from spark_jobs.tables.landing import parsed_on
from tests.ingested import SIGNALS, rows_of
from tests.refused import refused

pytestmark = pytest.mark.spark


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "theirs")


def source_of(uri: str, name: str = "signals", **changes: Any) -> Source:
    return replace(SIGNALS, name=name, connector=DeltaTable(uri=uri, **changes))


def write(spark: SparkSession, uri: str, *statements: str) -> None:
    for statement in statements:
        spark.sql(statement.format(table=f"delta.`{uri}`"))


def make(spark: SparkSession, uri: str, *properties: str) -> None:
    named = ", ".join(["'delta.enableDeletionVectors' = 'true'", *properties])
    columns = "device_id BIGINT, timestamp TIMESTAMP, value BIGINT, day DATE"
    write(
        spark,
        uri,
        f"CREATE TABLE {{table}} ({columns}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({named})",
    )


def insert(*values: int) -> str:
    """Rows whose `day` is only in the names of folders."""
    rows = (
        f"({value % 3}, TIMESTAMP '2026-03-0{1 + value % 2} 12:00:00', {value}, DATE '2026-03-0{1 + value % 2}')"
        for value in values
    )
    return f"INSERT INTO {{table}} VALUES {', '.join(rows)}"


def taken(lake: Lake, name: str = "signals") -> list[tuple[int, int, datetime]]:
    rows = rows_of(lake.bronze(name))
    return sorted((row["value"], row["device_id"], row["event_time"]) for row in rows)


def given(*values: int) -> list[tuple[int, int, datetime]]:
    return [(v, v % 3, datetime(2026, 3, 1 + v % 2, 12, tzinfo=UTC)) for v in sorted(values)]


@pytest.fixture(
    params=[
        pytest.param("INT96", marks=pytest.mark.e2e),
        pytest.param("TIMESTAMP_MICROS", marks=pytest.mark.full),
    ]
)
def times_as(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """How Spark stores instants: by itself in 96 bits."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield
    spark.conf.set(name, str(before))


@pytest.mark.usefixtures("times_as")
def test_appends_are_taken_and_other_changes_stop_or_are_ignored(
    lake: Lake, spark: SparkSession, uri: str
):
    make(spark, uri)
    write(spark, uri, insert(0, 1, 2), insert(3, 4))
    assert ingest(lake, source_of(uri)).rows_bronze == 5
    write(spark, uri, insert(5, 6), "OPTIMIZE {table}", insert(7))
    assert ingest(lake, source_of(uri), parse=parsed_on(spark)).rows_bronze == 3
    assert taken(lake) == given(*range(8))

    write(spark, uri, "DELETE FROM {table} WHERE value = 3", insert(8))
    with refused("changed_input", subject="on_change"):
        ingest(lake, source_of(uri))
    assert ingest(lake, source_of(uri, on_change="ignore")).rows_bronze == 1
    write(spark, uri, "UPDATE {table} SET value = 100 WHERE value = 4", insert(9))
    assert ingest(lake, source_of(uri, on_change="ignore")).rows_bronze == 1
    assert taken(lake) == given(*range(10))
    assert ingest(lake, source_of(uri)) == Counts()


def test_rows_that_a_deletion_vector_deletes_are_never_taken(
    lake: Lake, spark: SparkSession, uri: str
):
    make(spark, uri)
    write(spark, uri, insert(*range(0, 20, 2)), "DELETE FROM {table} WHERE value = 4")
    with refused("unreadable_input", subject="deletion vectors"):
        ingest(lake, source_of(uri))
    write(spark, uri, "REORG TABLE {table} APPLY (PURGE)")
    ingest(lake, source_of(uri))
    assert taken(lake) == given(*(value for value in range(0, 20, 2) if value != 4))


def test_names_that_are_mapped_are_refused(lake: Lake, spark: SparkSession, uri: str):
    make(spark, uri, "'delta.columnMapping.mode' = 'name'")
    write(spark, uri, insert(1))
    with refused("unreadable_input", subject="delta.columnMapping.mode"):
        ingest(lake, source_of(uri))
