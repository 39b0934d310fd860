"""The end of a job's process, the archive that its workers are sent, and their reading of a damaged file."""

import subprocess
import sys
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from include.lake.errors import SettingsError
from include.registry import all_streams
from include.settings import PROJECT
from spark_jobs.job import exit_with_main, zip_project


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


@pytest.mark.spark
@pytest.mark.parametrize("fails", [False, True])
def test_state_stores_are_closed_when_a_job_ends(spark: SparkSession, tmp_path, capsys, fails):
    def job() -> None:
        count_rows(spark, str(tmp_path))
        if fails:
            raise SettingsError("unknown stream")

    with pytest.raises(SystemExit) if fails else nullcontext() as ended:
        exit_with_main(job)
    if fails:
        assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)
    assert not has_open_stores(spark)


@pytest.mark.spark
@pytest.mark.parametrize("is_vectorized", ["true", "false"])
def test_no_value_of_a_flipped_page_is_read(spark, tmp_path, is_vectorized):
    path = tmp_path / "part.parquet"
    numbers = pa.table({"n": pa.array(range(1_000), pa.int64())})
    pq.write_table(
        numbers, path, write_page_checksum=True, compression="none", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    content[content.index((500).to_bytes(8, "little"))] ^= 1
    path.write_bytes(content)
    reader = "spark.sql.parquet.enableVectorizedReader"
    spark.conf.set(reader, is_vectorized)
    try:
        with pytest.raises(Py4JJavaError):
            spark.read.parquet(str(path)).agg({"n": "sum"}).collect()
    finally:
        spark.conf.unset(reader)


@pytest.mark.slow
def test_what_is_shipped_can_be_imported_where_the_project_is_not(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "helper.py").write_text("from include.streams import FOLDER")
    monkeypatch.setattr("spark_jobs.job.FOLDER", str(tmp_path / "own"))
    archive = tmp_path / "project.zip"
    zip_project(PROJECT, archive)
    modules = ["spark_jobs.engines.live", "spark_jobs.tables.landing"]
    modules += [f"include.streams.{stream.name}" for stream in all_streams()]
    modules.append("include.streams.helper")
    code = f"import sys, importlib; sys.path.append({str(archive)!r})\n"
    code += f"for name in {modules}: print(importlib.import_module(name).__file__)"
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    expected = [f"{archive}/{module.replace('.', '/')}.py" for module in modules]
    assert said.split() == expected
