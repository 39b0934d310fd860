"""Makes `lake.tar.xz`, a lake as release 0.6 leaves it, with what its tables must be.

    .venv/bin/python -m tests.e2e.lake_of_0_6.make <an empty folder>

Run by 0.6's own code, once: the archive stays as it is when the code goes on. The next release copies this
folder under its own name, adds what it has that is new, and runs its copy before it is released.
"""

import os
import sys
import tarfile
from pathlib import Path

from pyspark.sql import SparkSession

from include.lake.paths import Lake
from include.plans.open_stream import open_stream
from include.registry import stream_named
from include.spark.conf import STATE, job_conf
from include.spark.submit import jars_argument
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from spark_jobs.live_savepoint import write_live_savepoint
from spark_jobs.run_stream import drain
from tests.e2e.lake_of_0_6.kept import ARCHIVE, STREAMS, declared, land, write_expected

PARTS = ("lake", "theirs", "expected")


def main(folder: Path) -> None:
    """Three landings and a run after each, of which the second begins with rows that are late."""
    spark = session()
    with declared(folder) as lake:
        Path(lake.root).mkdir()
        for hours in (0, 2, 4):
            land(lake, folder, hours)
            run(spark, lake)
        write_expected(folder, lake)
        close_state_stores(spark)
    with tarfile.open(ARCHIVE, "w:xz") as packed:
        for part in PARTS:
            packed.add(folder / part, part)


def run(spark: SparkSession, lake: Lake) -> None:
    """Drain all streams; a savepoint of each after its first run."""
    engine = SparkEngine(spark)
    for name in STREAMS:
        stream = stream_named(name)
        is_first = not lake.is_delta_table(lake.table(name))
        drain(engine, lake, stream)
        if is_first:
            write_live_savepoint(engine, open_stream(lake, stream), "golden-run", "on_demand")


def session() -> SparkSession:
    """A session in this process, with the settings of a job."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path.cwd())
    builder = SparkSession.builder.master("local[2]").appName("golden")
    settings = {**job_conf(), **STATE, "spark.jars": jars_argument(), "spark.driver.memory": "2g"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
