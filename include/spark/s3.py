"""A lake on S3 as Spark opens it: by Hadoop's connector, and by classes of ours that write once.

Set-up fetches the one and compiles the others where LAKE is on S3 (`include/setup/s3.py`). They
keep the writers of all drivers apart, by conditional puts: those of a Delta table's log, of which
delta-rs is one, and those of a checkpoint's batches.
"""

import hashlib
from pathlib import Path

from include.lake.s3 import s3_endpoint, s3_region
from include.settings import PROJECT, SettingsError
from include.spark.home import JARS

S3_JARS = JARS / "s3"
SOURCES = PROJECT / "include" / "spark" / "java"
COMPILED_WITH = (PROJECT / "include" / "jars.sha256", PROJECT / "include" / "jars_of_s3.sha256")


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
    """The connector's jars and that of our classes; SettingsError when set-up has not made them."""
    classes = classes_jar()
    if not classes.is_file():
        raise SettingsError(
            f"{classes} is not there, which jobs need for a lake on S3: run "
            "`LAKE=s3a://... ./stateful setup` once, with a JDK (for its javac)"
        )
    return sorted(S3_JARS.glob("*.jar"))


def java_sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def classes_jar() -> Path:
    """Where the jar of our classes lies: its name says of which sources it is, and beside what jars."""
    sources = hashlib.sha256()
    for file in (*java_sources(), *COMPILED_WITH):
        sources.update(file.read_bytes())
    return S3_JARS / f"stateful-lake-{sources.hexdigest()[:16]}.jar"
