"""What every job on Spark shares: its session, a lake and a project that workers can read, and its end."""

import atexit
import shutil
import socket
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyarrow import fs
from pyspark import SparkContext
from pyspark.sql import SparkSession

from include import job
from include.lake.errors import LakeError
from include.lake.paths import Lake, open_lake
from include.maintain.check_checkpoint import told_why
from include.registry import stream_named
from include.settings import PROJECT, Stream
from include.spark.conf import is_local


def check_lake_shared(context: SparkContext, lake: Lake) -> None:
    """LakeError when Spark does not open `lake` where Python does, or a worker cannot use it.

    The workers are asked only for a local lake on a cluster: a second or two, in which the
    Python starts that the job needs as well. One that joins later is not asked.
    """
    _check_default_filesystem(context, lake)
    if is_local(str(context.master)) or not isinstance(lake.filesystem, fs.LocalFileSystem):
        return
    root = lake.path_in_filesystem(lake.root)
    # Of a name that is nowhere else: who can write into it sees this very folder.
    folder = Path(root, f".seen-by-workers-{uuid4().hex}")
    try:
        folder.mkdir()
    except OSError as error:
        raise LakeError(
            f"LAKE={lake.root} cannot be written to: {error.strerror}", code="wrong_lake"
        ) from error
    try:
        failures = _ask_workers(context, str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if failures:
        raise LakeError(
            f"LAKE={lake.root} is on this machine, but not usable on every Spark worker "
            f"({'; '.join(failures)}): mount the same shared volume at {root} on all of them, "
            "or give the URI of an object store",
            code="wrong_lake",
        )


def _check_default_filesystem(context: SparkContext, lake: Lake) -> None:
    """A path without a scheme is a local one for Python; for Spark Hadoop's configuration says."""
    assert context._jsc is not None
    default = context._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
    if "://" not in lake.root and not default.startswith("file:"):
        raise LakeError(
            f"LAKE={lake.root} is a folder, but Spark would look for it in {default}, by Hadoop's "
            f"fs.defaultFS: give LAKE={default.rstrip('/')}{lake.root}, or for a shared folder set "
            "spark.hadoop.fs.defaultFS to file:///",
            code="wrong_lake",
        )


def _ask_workers(context: SparkContext, folder: str) -> list[str]:
    """What failed on which host, sorted; asks again for as long as workers join meanwhile."""
    asked, failures = 0, set[str]()
    while (executors := _executors(context)) > asked:
        asked = executors
        # As many tasks as there is room for: Spark gives each worker some before any gets more.
        tasks = max(context.defaultParallelism, executors)
        asking = context.parallelize(range(tasks), tasks).map(partial(failure_here, folder))
        failures.update(failure for failure in asking.collect() if failure)
    return sorted(failures)


def _executors(context: SparkContext) -> int:
    """How many have joined, and at least 1: Spark waits for the first of them."""
    assert context._jsc is not None
    with_driver: int = context._jsc.sc().getExecutorMemoryStatus().size()
    return max(with_driver - 1, 1)


def failure_here(folder: str, task: int) -> str | None:
    """On a worker: why it cannot write into `folder`, with its host; None when it can."""
    try:
        Path(folder, f"{task}-{uuid4().hex}").touch()
    except OSError as error:
        return f"{socket.gethostname()}: {error.strerror}"
    return None


PACKAGES = ("include", "spark_jobs")


def ship_project(context: SparkContext) -> None:
    """Let every task of `context` import the project, wherever it runs."""
    # The driver serves the file to executors for as long as it lives: they may come late.
    folder = mkdtemp(prefix="project-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, "project.zip")
    zip_project(PROJECT, archive)
    context.addPyFile(str(archive))


def zip_project(project: Path, archive: Path) -> None:
    """The Python files of `project`'s packages into `archive`."""
    files = [file for package in PACKAGES for file in (project / package).rglob("*.py")]
    # Not strict: a file may be older than a zip file can say.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as target:
        for file in files:
            target.write(file, file.relative_to(project))


def spark_session(app_name: str, lake: Lake) -> SparkSession:
    """The session that spark-submit configured (`include/spark/conf.py`).

    On a cluster its workers get the project's Python. LakeError when they cannot use `lake`.
    """
    spark = SparkSession.builder.appName(app_name).getOrCreate()
    if not is_local(str(spark.sparkContext.master)):
        ship_project(spark.sparkContext)
    check_lake_shared(spark.sparkContext, lake)
    return spark


@contextmanager
def stream_job(name: str, args: Namespace) -> Iterator[tuple[SparkSession, Lake, Stream]]:
    """The session, lake and stream of a job's arguments. Of a broken lake its failure says what is broken."""
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    spark = spark_session(f"{name}-{stream.name}", lake)
    with told_why(lake, stream):
        yield spark, lake, stream


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
