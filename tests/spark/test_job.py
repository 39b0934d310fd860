"""How a job's process ends."""

import pytest
from pyspark.sql import SparkSession

from include.lake.errors import SettingsError
from spark_jobs.job import exit_with_main

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
