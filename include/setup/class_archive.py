"""The archive of Spark's and Delta's classes that a JVM maps into memory (AppCDS).

Loading 20,000 classes is half of a small job's time. A job writes the archive when it ends. A JVM
ignores one of another Java or other jars; set-up then makes a new one.
"""

import os
import sys

from include.lake.errors import SettingsError
from include.settings import PROJECT
from include.spark.conf import CLASS_ARCHIVE, JARS, JAVA_OPTIONS, JAVA_OPTIONS_SETTING, SILENT
from include.spark.submit import run_job, say

# `made_of` when the archive was last made, or could not be made.
STAMP = JARS / "classes.made-of"


def made_of(java: str) -> str:
    """The Java and jars that an archive depends on, as text; `java` is the output of `java -version`."""
    spark = PROJECT.glob(".venv/lib/python*/site-packages/pyspark/jars/*.jar")
    found = [*JARS.glob("*.jar"), *spark]
    jars = sorted((str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in found)
    return repr((java, jars))


def is_archived(java: str) -> bool:
    """True if the archive is up to date, or cannot be made."""
    if not os.access(JARS, os.W_OK):
        return True
    return STAMP.is_file() and STAMP.read_text() == made_of(java)


def main() -> None:
    """Make the archive; run by the Python of .venv with the output of `java -version`."""
    java = sys.argv[1]
    archive = JARS / "classes.new"
    for old in (CLASS_ARCHIVE, archive):
        old.unlink(missing_ok=True)
    options = os.environ.get(JAVA_OPTIONS_SETTING, JAVA_OPTIONS)
    wanted = f'{options} "-XX:ArchiveClassesAtExit={archive}" {SILENT}'
    os.environ |= {"SPARK_MASTER": "local[2]", JAVA_OPTIONS_SETTING: wanted}
    try:
        is_made = run_job("archive_classes", []) == 0 and archive.is_file()
    except SettingsError as error:  # Spark's jars do not fit
        say(str(error))
        is_made = False
    if is_made:
        archive.replace(CLASS_ARCHIVE)
    else:
        say("  that failed: jobs take seconds longer")
    STAMP.write_text(made_of(java))


if __name__ == "__main__":
    main()
