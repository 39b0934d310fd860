"""What every job on Spark shares: its session, and how it ends."""

import logging
from collections.abc import Callable
from contextlib import suppress

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from include import job
from include.lake.paths import Lake
from include.spark.master import is_local
from include.spark.submit import installed_versions
from include.spark.versions import untried
from spark_jobs.shared_lake import check_lake_shared
from spark_jobs.ship_project import ship_project

log = logging.getLogger("job")


def spark_session(app_name: str, lake: Lake) -> SparkSession:
    """The session that spark-submit configured (`include/spark/conf.py`).

    On a cluster its workers get the project's Python. LakeError when they cannot use `lake`. Of a Spark
    or Delta that the project was not tried with a line says so.
    """
    spark = SparkSession.builder.appName(app_name).getOrCreate()
    # On YARN Python's files are those of spark-submit's archive, beside which there are no jars.
    if said := untried(installed_versions()._replace(spark=str(spark.version))):
        log.warning("warning: %s", said)
    if not is_local(str(spark.sparkContext.master)):
        ship_project(spark.sparkContext)
    check_lake_shared(spark.sparkContext, lake)
    return spark


def exit_with_main(main: Callable[[], None]) -> None:
    """As `include.job` does; and no state store is left open."""
    try:
        job.exit_with_main(main)
    finally:
        if (spark := SparkSession.getActiveSession()) is not None:
            with suppress(Py4JNetworkError):  # the JVM died, and its stores with it
                close_state_stores(spark)


def close_state_stores(spark: SparkSession) -> None:
    """Close the RocksDB instances that queries left open in the driver's JVM: Spark never does.

    A JVM that ends over an open one may abort (exit code 134), though all of the job was done.
    """
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
