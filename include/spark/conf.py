"""The Spark settings of every job, each with its reason; the master; Spark's own folder.

They are given on the spark-submit line: Delta must be on the class path before the JVM starts, and the task
log shows what was set. The master is checked before that: Spark itself reports a wrong one in a stack trace,
and waits a minute for one that is not there.
"""

import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from include.lake.errors import SettingsError
from include.lake.s3 import s3_endpoint, s3_region
from include.settings import PROJECT, Stream

SETTING = "SPARK_MASTER"
TIMEOUT_S = 5.0  # a master on the network answers in milliseconds, or not at all

YARN = "yarn"
LOCAL = re.compile(r"local(\[([1-9]\d*|\*)(,\s*[1-9]\d*)?\])?", re.ASCII)
CLUSTER = re.compile(r"yarn|k8s://\S+|spark://[^\s,/]+:\d+(,[^\s,/]+:\d+)*", re.ASCII)
ALLOWED = "local[*], local[<threads>], spark://<host>:<port>, yarn or k8s://https://<host>:<port>"


class MasterUnreachableError(SettingsError):
    """Nothing answers at the master's address: it has not started, or the address is wrong."""


def checked_master(master: str, setting: str = SETTING) -> str:
    """Return `master`; SettingsError, which names its `setting`, when it is none."""
    if is_local(master) or CLUSTER.fullmatch(master):
        return master
    raise SettingsError(f"{setting} is {master!r}: allowed are {ALLOWED}", subject=setting)


def is_local(master: str) -> bool:
    """True if jobs run on this machine, all in the one JVM of the driver."""
    return LOCAL.fullmatch(master) is not None


def check_reachable(master: str, setting: str = SETTING) -> None:
    """Raise MasterUnreachableError when no host of a `spark://` master takes a connection."""
    if not master.startswith("spark://"):
        return
    errors = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S).close()
            return
        except (OSError, OverflowError) as error:  # the latter for a port beyond 65535
            errors.append(f"{address}: {error}")
    raise MasterUnreachableError(
        f"no Spark master answers at {master} ({'; '.join(errors)}): "
        f"start the cluster, or correct {setting}",
        code="unreachable_master",
        subject=setting,
    )


JARS = PROJECT / ".jars"  # fetched and made by set-up
LINKED = ("bin", "conf", "jars", "sbin")  # Spark's scripts look for these in its home


def spark_package() -> Path:
    """Return the folder of the package pyspark that a job imports; SettingsError where there is none."""
    of_caller = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    found = PathFinder.find_spec("pyspark", [path for path in sys.path if path not in of_caller])
    if found is None or not found.submodule_search_locations:
        message = "pyspark is not installed here"
        raise SettingsError(message, code="not_installed", command="./stateful validate")
    return Path(next(iter(found.submodule_search_locations)))


def spark_home(package: Path) -> Path:
    """Return a folder of links into `package`, made at the first call; `package` where it cannot be made.

    It has no pyspark.zip, which comes first on Python's path and has no compiled files: each of a run's
    six Python processes would compile it, a fifth of a small run.
    """
    # A name for each package: the JVM of another job may be reading jars through these links.
    name = hashlib.sha256(os.fsencode(package)).hexdigest()[:8]
    home = JARS / f"spark-{name}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in LINKED:
            if (package / part).is_dir() and not (home / part).is_symlink():
                with suppress(FileExistsError):  # by another job, at once
                    (home / part).symlink_to(package / part)
    except OSError:
        return package
    return home


def refuse_unfit(package: Path) -> None:
    """Raise SettingsError when Spark's jars, or Delta's, are not for the version of Spark's Python files."""
    text = (package / "version.py").read_text()
    found = re.search(r"^__version__\b.*=\s*['\"]([^'\"]+)", text, re.M)
    version = found[1] if found else ""
    series, deltas = version.rpartition(".")[0], [jar.name for jar in JARS.glob(f"{DELTA}_*.jar")]
    has_jars = any((package / "jars").glob(f"spark-core_*-{version}.jar"))
    if has_jars and (not deltas or any(jar.startswith(f"{DELTA}_{series}_") for jar in deltas)):
        return
    raise SettingsError(
        f"Spark's Python files are of {version}: its jars, or Delta's in {JARS}, are not",
        code="unfit_versions",
        subject="pyspark",
        command=f".venv/bin/python -m pip install --force-reinstall --no-deps pyspark=={version}",
    )


DELTA = "io.delta_delta-spark"
SOURCES = PROJECT / "include" / "spark" / "java"
DELTA_CHECKSUMS = PROJECT / "include" / "jars.sha256"
NAME = "stateful-lake-{}.jar"


def java_sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def classes_jar() -> Path:
    """Return the path of the jar of our classes: its name has the hash of their sources and of Delta's jars."""
    sources = hashlib.sha256()
    for file in (*java_sources(), DELTA_CHECKSUMS):
        sources.update(file.read_bytes())
    return JARS / NAME.format(sources.hexdigest()[:16])


# The classes of a job, which a JVM maps into memory: set-up makes it, as loading them takes seconds.
CLASS_ARCHIVE = JARS / "classes.jsa"
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
LOG4J = PROJECT / "include" / "log4j2.properties"
STATE_STORE = "spark.sql.streaming.stateStore"
RETAINED_BATCHES = "spark.sql.streaming.minBatchesToRetain"
# A small run's JVM ends before the second compiler has paid for itself: two fifths of the CPU.
# One thread of garbage collection leaves the cores to the tasks, and a quarter of the memory.
# Over millions of keys runs take a sixth longer by it: docs/speed.md has the figures.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
JAVA_OPTIONS_SETTING = "SPARK_DRIVER_JAVA_OPTIONS"
# A JVM whose heap is full goes on without some of its threads, and does not report it: Spark ends its
# executors on YARN likewise. `run_job` knows the exit code, 3.
END_WITH_FULL_HEAP = "-XX:+ExitOnOutOfMemoryError"
BASE: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # All instants are UTC, in tables and texts.
    "spark.sql.session.timeZone": "UTC",
    # A page on a random port is gone with the run, and costs a second at start.
    "spark.ui.enabled": "false",
    # The logs of small tables are small: 50 partitions (Delta's default) are 50 tasks a read.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Instants stay microseconds in Parquet, as in the fold.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Of a file with flipped bits the reader raises an error, instead of other values.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A progress bar in a task log is one line per refresh.
    "spark.ui.showConsoleProgress": "false",
    # Plans have more columns than the default shows, with a warning each.
    "spark.sql.debug.maxToStringFields": "200",
    # A batch is often one file of a few megabytes: with Spark's 4 MB one task would read it.
    "spark.sql.files.openCostInBytes": "524288",
    # Arrow carries the rows to Python; the fallback would be slow, and silent.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
}
# Hadoop starts a process for each local file that it creates or renames: some 100 a batch. Not on a
# cluster, where a JVM may open local files before it has been sent our classes.
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
    # Without it a million keys took 204 MB after 20 change logs, and more with each.
    f"{STATE_STORE}.rocksdb.boundedMemoryUsage": "true",
    # Snapshots are a third smaller than with lz4; CPU time did not move.
    f"{STATE_STORE}.rocksdb.compression": "zstd",
    # With Spark's 10, a run flushes its change logs into a snapshot that nobody uploads before it ends.
    f"{STATE_STORE}.minDeltasForSnapshot": "1000",
    # Batches that can be read, and rolled back to. Spark's 100 would keep as many versions.
    RETAINED_BATCHES: "10",
}
# Spark's maintenance thread alone uploads snapshots and deletes old versions, and a short run ends before
# it wakes up: so the tasks of a compaction's batches do it.
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
    """Return the Delta jars, and that of our classes if set-up has made it; SettingsError without any."""
    found = sorted(jar for jar in JARS.glob("*.jar") if not jar.match(NAME.format("*")))
    if not found:
        raise SettingsError(f"{JARS}: no jars", code="missing_jars", command="./stateful validate")
    return [*found, classes_jar()] if classes_jar().is_file() else found


def conf_on(master: str) -> Mapping[str, str]:
    """Return the settings of any job on `master`; none until set-up has made our classes."""
    return FORKLESS if is_local(master) and classes_jar().is_file() else {}


def class_path() -> str:
    """Return the beginning of a driver's class path: Delta's jars and ours, then Spark's in its order.

    A JVM takes the class archive only if its class path begins as the archive's: so this comes before
    SPARK_CONF_DIR.
    """
    of_spark = spark_package() / "jars"
    first = sorted(of_spark.glob("slf4j-api-*.jar"))
    return ":".join(map(str, [*jars(), *first, of_spark / "*"]))


def archive_options() -> list[str]:
    """Return the options by which a JVM takes its classes from the archive, if there is one."""
    if not CLASS_ARCHIVE.is_file():
        return []
    return [f'"-XX:SharedArchiveFile={CLASS_ARCHIVE}"', "-Xshare:auto", SILENT]


def driver_java_options() -> str:
    """Return the options of a driver's JVM; SPARK_DRIVER_JAVA_OPTIONS replaces JAVA_OPTIONS."""
    tuned = os.environ.get(JAVA_OPTIONS_SETTING, JAVA_OPTIONS)
    # Quoted, as a folder's name may have spaces.
    ours = [f'"-Dlog4j2.configurationFile=file:{LOG4J}"', *archive_options(), END_WITH_FULL_HEAP]
    return " ".join([*ours, tuned]).rstrip()


def job_conf(stream: Stream | None = None) -> dict[str, str]:
    """Return the Spark settings of a job; a stream adds its state settings."""
    conf = dict(BASE)
    # Spark turns it off for streaming queries by itself, with a warning each time.
    conf["spark.sql.adaptive.enabled"] = "false"
    conf["spark.driver.extraJavaOptions"] = driver_java_options()
    conf["spark.driver.extraClassPath"] = class_path()
    if stream is None:
        conf["spark.sql.shuffle.partitions"] = "2"  # a laptop's cores; ingest shuffles little
    else:
        conf |= STATE
        # The first run fixes the number of state partitions by it.
        conf["spark.sql.shuffle.partitions"] = str(stream.state_partitions)
    return conf


S3_JARS = JARS / "s3"


def s3_conf() -> dict[str, str]:
    """Return the settings for a lake on S3, from the variables that delta-rs and Arrow read, too."""
    conf = {
        "spark.delta.logStore.s3a.impl": "stateful.lake.ConditionalLogStore",
        "spark.sql.streaming.checkpointFileManagerClass": "stateful.lake.ConditionalCheckpointFiles",
    }
    if region := s3_region():
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint := s3_endpoint():
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # A store of one's own seldom has a host name for each bucket.
        conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return conf


def s3_jars() -> list[Path]:
    """Return the jars for S3; SettingsError when set-up has not fetched them, or not made our classes."""
    found = sorted(S3_JARS.glob("*.jar"))
    if not found or not classes_jar().is_file():
        raise SettingsError(
            f"{classes_jar() if found else S3_JARS} is not there, which jobs need for a lake on S3",
            code="missing_jars",
            subject="LAKE",
            command="LAKE=s3a://... ./stateful validate",
        )
    return found
