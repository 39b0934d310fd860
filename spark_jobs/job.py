"""The Spark session of every job, from shipping the project to its workers to closing its stores."""

import atexit
import shutil
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from include import job
from include.lake.paths import Lake, open_lake
from include.maintain.check_checkpoint import explained
from include.registry import stream_named
from include.settings import PROJECT, Stream
from include.spark.conf import is_local
from include.streams import FOLDER

PACKAGES = ("include", "spark_jobs")


def ship_project(context: SparkContext) -> None:
    """Make the project importable for every task of `context`."""
    # The driver serves the file to executors for as long as it lives: they may come late.
    folder = mkdtemp(prefix="project-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, "project.zip")
    zip_project(PROJECT, archive)
    context.addPyFile(str(archive))


def zip_project(project: Path, archive: Path) -> None:
    """Write the Python files of the project's packages into `archive`."""
    ours = (file for package in PACKAGES for file in (project / package).rglob("*.py"))
    files = {file.relative_to(project): file for file in ours}
    own = project / FOLDER  # which workers need not see
    found = (file for file in own.rglob("*.py") if file != own / "__init__.py")
    files |= {Path("include", "streams", file.relative_to(own)): file for file in found}
    # Not strict: a file may be older than a zip file can say.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as target:
        for name, file in files.items():
            target.write(file, name)


def spark_session(app_name: str) -> SparkSession:
    """The session that spark-submit configured; a cluster's workers get the project's Python."""
    spark = SparkSession.builder.appName(app_name).getOrCreate()
    if not is_local(str(spark.sparkContext.master)):
        ship_project(spark.sparkContext)
    return spark


@contextmanager
def stream_job(name: str, args: Namespace) -> Iterator[tuple[SparkSession, Lake, Stream]]:
    """The session, lake and stream of a job's arguments; a failure is explained by what is broken."""
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    spark = spark_session(f"{name}-{stream.name}")
    with explained(lake, stream):
        yield spark, lake, stream


def exit_with_main(main: Callable[[], None]) -> None:
    """Run a job's `main` and exit as `include.job` does, with all state stores closed."""
    try:
        job.exit_with_main(main)
    finally:
        if (spark := SparkSession.getActiveSession()) is not None:
            with suppress(Py4JNetworkError):  # the JVM died, and its stores with it
                close_state_stores(spark)


def close_state_stores(spark: SparkSession) -> None:
    """Close the driver's RocksDB instances: a JVM that ends over an open one may abort (134)."""
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
