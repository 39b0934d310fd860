"""What jobs need for a lake on S3: Hadoop's connector, in .jars/s3.

Of AWS's SDK the parts that the connector uses: it asks for all of it, in one jar of hundreds of
megabytes. Netty and the like are Spark's own.
"""

from pathlib import Path

from include.setup.jars import CHECKSUMS, fetch_jars, missing_jars
from include.spark.s3 import S3_JARS

SDK = "2.35.4"  # that of the connector
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    f"software.amazon.awssdk:s3-transfer-manager:{SDK}",
    f"software.amazon.awssdk:apache-client:{SDK}",
)
NOT_NEEDED = ("software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl")
S3_CHECKSUMS = CHECKSUMS.with_name("jars_of_s3.sha256")


def is_ready() -> bool:
    """Whether jobs can use a lake on S3."""
    return not missing_jars(S3_JARS, S3_CHECKSUMS)


def prepare(python: Path) -> None:
    """Whatever is missing for it. SetupError says what stands in the way."""
    if not is_ready():
        fetch_jars(python, S3_JARS, ",".join(PACKAGES), S3_CHECKSUMS, NOT_NEEDED)
