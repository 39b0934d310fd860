"""A lake on S3 as Spark opens it: by Hadoop's connector, and by classes of ours that write once.

Set-up fetches the connector where LAKE is on S3 (`include/setup/s3.py`). Our classes keep the
writers of all drivers apart, by conditional puts: those of a Delta table's log, of which delta-rs
is one, and those of a checkpoint's batches.
"""

from pathlib import Path

from include.lake.s3 import s3_endpoint, s3_region
from include.settings import SettingsError
from include.spark.home import JARS
from include.spark.java_classes import classes_jar

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
            f"{classes_jar() if found else S3_JARS} is not there, which jobs need for a lake on S3: run "
            "`LAKE=s3a://... ./stateful setup` once",
            code="missing_jars",
            subject="LAKE",
            command="LAKE=s3a://... ./stateful setup",
        )
    return found
