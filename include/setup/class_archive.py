"""The classes of Spark and Delta as an archive that a JVM maps into memory (AppCDS).

Half a job's time goes into loading the same 20,000 classes. A small job leaves them there at its
end. A JVM passes over an archive of another Java or other jars; set-up then makes a new one.
"""

import os
import sys

from include.lake.errors import SettingsError
from include.settings import PROJECT
from include.spark.conf import CLASS_ARCHIVE, JARS, JAVA_OPTIONS, JAVA_OPTIONS_SETTING, SILENT
from include.spark.submit import run_job, say

# What the archive was made of, or was tried to be.
STAMP = JARS / "classes.made-of"


def made_of(java: str) -> str:
    """All that an archive depends on, as text; `java` is what `java -version` says."""
    spark = PROJECT.glob(".venv/lib/python*/site-packages/pyspark/jars/*.jar")
    found = [*JARS.glob("*.jar"), *spark]
    jars = sorted((str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in found)
    return repr((java, jars))


def is_archived(java: str) -> bool:
    """Whether there is nothing to do: it was made of all this, or it cannot be made."""
    if not os.access(JARS, os.W_OK):
        return True
    return STAMP.is_file() and STAMP.read_text() == made_of(java)


def main() -> None:
    """Make the archive anew: to be run by the Python of .venv, with what `java -version` says."""
    java = sys.argv[1]
    archive = JARS / "classes.new"
    for old in (CLASS_ARCHIVE, archive):
        old.unlink(missing_ok=True)
    options = os.environ.get(JAVA_OPTIONS_SETTING, JAVA_OPTIONS)
    wanted = f'{options} "-XX:ArchiveClassesAtExit={archive}" {SILENT}'
    os.environ |= {"SPARK_MASTER": "local[2]", JAVA_OPTIONS_SETTING: wanted}
    try:
        is_made = run_job("archive_classes", []) == 0 and archive.is_file()
    except SettingsError as error:  # of a Spark that jobs are not to run on
        say(str(error))
        is_made = False
    if is_made:
        archive.replace(CLASS_ARCHIVE)
    else:
        say("  it could not be: jobs take seconds longer")
    STAMP.write_text(made_of(java))


if __name__ == "__main__":
    main()
