"""What jobs need for a lake on S3: Hadoop's connector, and our classes beside it, in .jars/s3.

Of AWS's SDK the parts that the connector uses: it asks for all of it, in one jar of hundreds of
megabytes. Netty and the like are Spark's own.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from include.setup.jars import CHECKSUMS, SetupError, fetch_jars, missing_jars
from include.spark.home import JARS
from include.spark.s3 import S3_JARS, classes_jar, java_sources

SDK = "2.35.4"  # that of the connector
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    f"software.amazon.awssdk:s3-transfer-manager:{SDK}",
    f"software.amazon.awssdk:apache-client:{SDK}",
)
NOT_NEEDED = ("software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl")
S3_CHECKSUMS = CHECKSUMS.with_name("jars_of_s3.sha256")
ALWAYS_THE_SAME = (1980, 1, 1, 0, 0, 0)


def is_ready() -> bool:
    """Whether jobs can use a lake on S3."""
    return not missing_jars(S3_JARS, S3_CHECKSUMS) and classes_jar().is_file()


def prepare(python: Path) -> None:
    """Whatever is missing for it. SetupError says what stands in the way."""
    if missing_jars(S3_JARS, S3_CHECKSUMS):
        fetch_jars(python, S3_JARS, ",".join(PACKAGES), S3_CHECKSUMS, NOT_NEEDED)
    if not classes_jar().is_file():
        for jar in S3_JARS.glob("stateful-lake-*.jar"):
            jar.unlink()
        _compile(python)


def _compile(python: Path) -> None:
    """Make the jar of our classes: of the same sources the same bytes."""
    (spark,) = python.parents[1].glob("lib/python*/site-packages/pyspark/jars")
    path = ":".join(f"{folder}/*" for folder in (spark, JARS, S3_JARS))
    with TemporaryDirectory() as folder:
        command = ["javac", "--release", "17", "-cp", path, "-d", folder]
        try:
            made = subprocess.run(
                [*command, *map(str, java_sources())], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise SetupError(
                f"a lake on S3 needs a JDK, for its javac ({error}): install one (Debian: "
                "apt-get install openjdk-17-jdk-headless)"
            ) from error
        if made.returncode:
            raise SetupError(f"javac could not compile {java_sources()[0].parent}: {made.stderr}")
        _pack(Path(folder), classes_jar())


def _pack(folder: Path, jar: Path) -> None:
    unfinished = jar.with_suffix(".new")
    with ZipFile(unfinished, "w", ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*.class")):
            entry = ZipInfo(str(file.relative_to(folder)), ALWAYS_THE_SAME)
            packed.writestr(entry, file.read_bytes(), ZIP_DEFLATED)
    unfinished.replace(jar)
