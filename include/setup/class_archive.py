"""The classes of Spark and Delta as an archive that a JVM maps into memory (AppCDS).

Half a job's time goes into loading and checking the same 20,000 classes. A small job that has run
what all jobs do leaves them in .jars/classes.jsa as it ends; each JVM after it has them at once. The
JVM itself passes over an archive of another Java or other jars; set-up then makes a new one. Where
that fails jobs run as they did without: slower, and right.
"""

import os
import subprocess
import sys
from pathlib import Path

from include.lake.errors import SettingsError
from include.settings import PROJECT
from include.spark.conf import CLASS_ARCHIVE, JARS, driver_java_options
from include.spark.submit import job_environment, submit_command

# What the archive was made of, or was tried to be.
STAMP = JARS / "classes.made-of"
LOG = JARS / "classes.log"
JAVA_OPTIONS = "spark.driver.extraJavaOptions="
TIMEOUT_S = 600


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
    CLASS_ARCHIVE.unlink(missing_ok=True)
    archive = JARS / "classes.new"
    archive.unlink(missing_ok=True)
    if _run_job(archive) and archive.is_file():
        archive.replace(CLASS_ARCHIVE)
    else:
        sys.stdout.write(f"  it could not be: jobs take seconds longer. {LOG} says why\n")
    STAMP.write_text(made_of(java))


def _run_job(archive: Path) -> bool:
    """Whether the job that leaves the archive has come to its end."""
    with LOG.open("w") as log:
        try:
            environment = os.environ | job_environment("local[2]")
            environment.pop("SPARK_MASTER", None)
            ended = subprocess.run(
                archiving_command(archive),
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return False
        except SettingsError as error:  # of a Spark that jobs are not to run on
            log.write(f"{error}\n")
            return False
    return ended.returncode == 0


def archiving_command(archive: Path) -> list[str]:
    """spark-submit of the job, in a JVM that archives its classes."""
    options = driver_java_options()
    wanted = f'{options} "-XX:ArchiveClassesAtExit={archive}"'
    command = submit_command("archive_classes", [], master="local[2]")
    return [part.replace(f"{JAVA_OPTIONS}{options}", f"{JAVA_OPTIONS}{wanted}") for part in command]


if __name__ == "__main__":
    main()
