"""The Spark settings every job runs with, each with its reason.

Given on the spark-submit line, not in the session builder: Delta must be on the class
path before the JVM starts, and a reader of the task log sees what was set.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from include.lake.s3 import s3_endpoint, s3_region
from include.settings import PROJECT, SettingsError, Stream
from include.spark.home import JARS, spark_package
from include.spark.master import is_local
from include.spark.versions import classes_jar, is_of_our_classes

# The classes of a job as a JVM maps them into memory: made by set-up, as loading them takes seconds.
CLASS_ARCHIVE = JARS / "classes.jsa"
LOG4J = PROJECT / "include" / "log4j2.properties"
STATE_STORE = "spark.sql.streaming.stateStore"
RETAINED_BATCHES = "spark.sql.streaming.minBatchesToRetain"
# A small run's JVM ends before the second compiler has paid for itself: two fifths of the CPU.
# One thread of garbage collection leaves the cores to the tasks, and a quarter of the memory.
# Over millions of keys runs take a sixth longer by it: docs/scale.md has the figures.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# A JVM whose heap is full goes on with some of its threads gone, and in the end says nothing of it: so
# Spark ends its executors on YARN, too. Exit code 3 is known to whoever has started the job.
END_WITH_FULL_HEAP = "-XX:+ExitOnOutOfMemoryError"
BASE: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # All instants are UTC, in the tables and in what people see.
    "spark.sql.session.timeZone": "UTC",
    # A page per run on a random port helps nobody after the run, and costs a second at start.
    "spark.ui.enabled": "false",
    # The logs of small tables are small: 50 partitions (Delta's default) are 50 tasks a read.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Instants stay microseconds in Parquet, as in the fold.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Of a file whose bits have turned the reader says so, instead of other values.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A progress bar in a task log is one line per refresh.
    "spark.ui.showConsoleProgress": "false",
    # Plans have more columns than the default shows, which it says in a warning.
    "spark.sql.debug.maxToStringFields": "200",
    # A batch is often one file of a few megabytes: with Spark's 4 MB one task would read it.
    "spark.sql.files.openCostInBytes": "524288",
    # Arrow carries the rows to Python; the fallback would be slow, and silent.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
}
# Hadoop starts a process for each local file that it makes, and for each name of a rename: some 100 a batch.
# Not on a cluster, where a JVM may open local files before it has been sent our classes.
FORKLESS: Mapping[str, str] = {
    "spark.hadoop.fs.file.impl": "stateful.lake.ForklessFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "stateful.lake.ForklessFs",
}
STATE: Mapping[str, str] = {
    f"{STATE_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Upload what changed in a batch, not the whole RocksDB instance.
    f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    # A get before each put, only to count rows: a put is 2.5 times cheaper without.
    f"{STATE_STORE}.rocksdb.trackTotalNumberOfRows": "false",
    # Batches that can be read, and gone back to. Spark's 100 would keep as many versions.
    RETAINED_BATCHES: "10",
}
# A run this short ends before Spark's maintenance thread wakes up, which alone uploads
# snapshots and deletes old versions: so it happens in the tasks of a compaction's batches.
COMPACTING: Mapping[str, str] = {
    f"{STATE_STORE}.unloadOnCommit": "true",
    f"{STATE_STORE}.minDeltasForSnapshot": "1",
    # Fewer and smaller SST files, without the tombstones of removed keys.
    f"{STATE_STORE}.rocksdb.compactOnCommit": "true",
    # Two snapshots: should one be damaged, Spark repairs it from the other.
    RETAINED_BATCHES: "2",
    # Delete what is not retained at once, not only when there is 30 % of it.
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
}


def jars() -> list[Path]:
    """The Delta jars that set-up must have fetched, and that of our classes once it has made it."""
    found = sorted(jar for jar in JARS.glob("*.jar") if not is_of_our_classes(jar))
    if not found:
        raise SettingsError(f"{JARS}: no jars", code="missing_jars", command="./stateful validate")
    return [*found, classes_jar()] if classes_jar().is_file() else found


def conf_on(master: str) -> Mapping[str, str]:
    """What any job sets where it runs on `master`.

    Without our classes jobs are slower, and right: as Dags are whose project was pulled before set-up.
    """
    return FORKLESS if is_local(master) and classes_jar().is_file() else {}


def class_path() -> str:
    """What the class path of a driver begins with: the jars of which the archive has classes.

    Delta's and ours, as of --jars there is none, and Spark's in Spark's own order. Spark puts the folder that
    SPARK_CONF_DIR names before its jars, and a JVM takes the archive only where it began as this did.
    """
    of_spark = spark_package() / "jars"
    first = sorted(of_spark.glob("slf4j-api-*.jar"))
    return ":".join(map(str, [*jars(), *first, of_spark / "*"]))


def archive_options() -> list[str]:
    """What makes a JVM take its classes from the archive, if there is one.

    It does not where Java or a jar is another than that of the archive, and says nothing of it.
    """
    if not CLASS_ARCHIVE.is_file():
        return []
    silent = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return [f'"-XX:SharedArchiveFile={CLASS_ARCHIVE}"', "-Xshare:auto", *silent]


def driver_java_options(log4j: Path = LOG4J, *more: str) -> str:
    """What the JVM of a driver starts with, which in local jobs is the only one.

    SPARK_DRIVER_JAVA_OPTIONS replaces JAVA_OPTIONS; empty, it is as Spark starts it.
    """
    tuned = os.environ.get("SPARK_DRIVER_JAVA_OPTIONS", JAVA_OPTIONS)
    ours = [log4j_option(log4j), *archive_options(), END_WITH_FULL_HEAP, *more]
    return " ".join([*ours, tuned]).rstrip()


def log4j_option(file: Path = LOG4J) -> str:
    """The option of a JVM that logs as `file` says; quoted, as a folder's name may have spaces."""
    return f'"-Dlog4j2.configurationFile=file:{file}"'


def job_conf(stream: Stream | None = None) -> dict[str, str]:
    """What one job sets on its spark-submit line; a stream adds its state settings."""
    conf = dict(BASE)
    # Spark turns it off for streaming queries by itself, with a warning each time.
    conf["spark.sql.adaptive.enabled"] = "false"
    conf["spark.driver.extraJavaOptions"] = driver_java_options()
    conf["spark.driver.extraClassPath"] = class_path()
    if stream is None:
        conf["spark.sql.shuffle.partitions"] = "2"  # a laptop's cores; ingest shuffles little
    else:
        conf |= STATE
        # Spark takes the number of state partitions from here at the first run, and pins it.
        conf["spark.sql.shuffle.partitions"] = str(stream.state_partitions)
    return conf


S3_JARS = JARS / "s3"


def s3_conf() -> dict[str, str]:
    """What a job sets for a lake on S3, from the variables that delta-rs and Arrow read, too.

    Credentials the connector reads from the environment itself.
    """
    conf = {
        "spark.delta.logStore.s3a.impl": "stateful.lake.ConditionalLogStore",
        "spark.sql.streaming.checkpointFileManagerClass": "stateful.lake.ConditionalCheckpointFiles",
    }
    if region := s3_region():
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint := s3_endpoint():
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # A store of one's own seldom has a name of its own for each bucket.
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return conf


def s3_jars() -> list[Path]:
    """The connector's jars; SettingsError when set-up has not fetched them, or not made our classes."""
    found = sorted(S3_JARS.glob("*.jar"))
    if not found or not classes_jar().is_file():
        raise SettingsError(
            f"{classes_jar() if found else S3_JARS} is not there, which jobs need for a lake on S3",
            code="missing_jars",
            subject="LAKE",
            command="LAKE=s3a://... ./stateful validate",
        )
    return found
