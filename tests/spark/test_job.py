"""How a job's process ends."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.settings import SettingsError
from include.spark import submit, versions
from spark_jobs.job import exit_with_main, spark_session

pytestmark = pytest.mark.spark


def has_open_stores(spark: SparkSession) -> bool:
    """Spark's maintenance runs from the first store that is opened until all are closed."""
    assert spark._jvm is not None
    store = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    return bool(store.isMaintenanceRunning())


def count_rows(spark: SparkSession, checkpoint: str) -> None:
    """A stateful query that leaves its stores open, as every one does."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    counts = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
    counts.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    for query in spark.streams.active:
        query.awaitTermination()
    assert has_open_stores(spark)


def test_state_stores_are_closed_when_a_job_ends(spark: SparkSession, tmp_path):
    exit_with_main(lambda: count_rows(spark, str(tmp_path)))
    assert not has_open_stores(spark)


def test_state_stores_are_closed_when_a_job_fails(spark: SparkSession, tmp_path, capsys):
    def fail() -> None:
        count_rows(spark, str(tmp_path))
        raise SettingsError("unknown stream")

    with pytest.raises(SystemExit) as ended:
        exit_with_main(fail)
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)
    assert not has_open_stores(spark)


@pytest.mark.parametrize("is_tried", [False, True])
def test_a_job_says_that_its_spark_was_not_tried(spark, lake, monkeypatch, caplog, is_tried):
    """Though, on YARN, it has pyspark from an archive, beside which there are no jars."""
    of_archive = Path("/spark/python/lib/pyspark.zip/pyspark")
    monkeypatch.setattr(submit, "spark_package", lambda: of_archive)
    if not is_tried:
        monkeypatch.setattr(versions, "TRIED", (("4.2.99", "4.4.0"),))
    spark_session("tests", lake)
    said = [record.getMessage() for record in caplog.records if record.name == "job"]
    assert [spark.version in line for line in said] == [True] * (not is_tried)
