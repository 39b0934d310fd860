"""With which Spark and Delta this project was tried, and what is said of those that are installed.

A checkpoint outlives the Spark that made it, and another one may read it otherwise, or leave what the
old one cannot read: so what was not tried is said before a JVM starts.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from include.settings import PROJECT, SettingsError
from include.spark.home import JARS

# Each went through the tests, on lakes of the other; the first is what requirements.in asks for.
TRIED = (("4.2.0", "4.4.0"), ("4.2.1", "4.4.0"))  # Spark, Delta
# In the environment, the version of Spark that is to run though its series was never tried.
UNTRIED = "SPARK_UNTRIED"
CORE_JAR = re.compile(r"spark-core_[\d.]+-(.+)\.jar")
DELTA_JAR = re.compile(r"io\.delta_delta-spark_(\d+\.\d+)_[\d.]+-(.+)\.jar")
PYTHON_VERSION = re.compile(r"^__version__\b.*=\s*['\"]([^'\"]+)", re.MULTILINE)


class Versions(NamedTuple):
    """What is installed; empty what is not."""

    spark: str  # by its jars
    spark_python: str  # by pyspark's Python files
    delta: str  # by its jar
    delta_for: str  # the series of Spark that this jar is made for


def installed(spark_home: Path, jars: Path = JARS) -> Versions:
    """The versions of the Spark in a folder, and of the Delta that jobs run with it."""
    delta = next(_matches(DELTA_JAR, jars), None)
    core = next(_matches(CORE_JAR, spark_home / "jars"), None)
    file = spark_home / "version.py"
    said = PYTHON_VERSION.search(file.read_text()) if file.is_file() else None
    return Versions(
        core[1] if core else "",
        said[1] if said else "",
        delta[2] if delta else "",
        delta_for=delta[1] if delta else "",
    )


def _matches(pattern: re.Pattern[str], folder: Path) -> Iterator[re.Match[str]]:
    return filter(None, (pattern.fullmatch(jar.name) for jar in sorted(folder.glob("*.jar"))))


def refuse_unfit(found: Versions) -> None:
    """SettingsError when parts of it do not fit, or a series of it was never tried."""
    if (unfit := _why_unfit(found)) is not None:
        raise SettingsError(unfit[0], code="unfit_versions", subject="pyspark", command=unfit[1])
    if is_tried_series(found) or os.environ.get(UNTRIED) == found.spark:
        return
    raise SettingsError(
        f"{_named(found)} was never tried with this project, which was with {_tried()}: whether it "
        "reads checkpoints that are there, and whether an older one reads what it leaves, is not "
        f"known. Try it on a copy of the lake: {UNTRIED}={found.spark} in the environment runs jobs",
        code="untried_versions",
        subject=UNTRIED,
    )


def _why_unfit(found: Versions) -> tuple[str, str | None] | None:
    if found.spark != found.spark_python:
        whole = found.spark or found.spark_python
        of_jars = f"of {found.spark}" if found.spark else "missing"
        return (
            f"Spark's jars are {of_jars}, its Python files of {found.spark_python or 'no version'}: the "
            "package pyspark-client, which has the same files, was installed over pyspark",
            f".venv/bin/python -m pip install --force-reinstall --no-deps pyspark=={whole}",
        )
    if found.delta and found.delta_for != _series(found.spark):
        return (
            f"the jar of Delta {found.delta} in {JARS} is for Spark {found.delta_for}, and Spark "
            f"{found.spark} is installed: PACKAGE in include/setup/jars.py and include/jars.sha256 name "
            "the jar, requirements.in Spark",
            None,
        )
    return None


def is_tried_series(found: Versions) -> bool:
    """Whether a release of both series was tried; of an unknown Delta only Spark's counts."""
    tried = {(_series(spark), _series(delta)) for spark, delta in TRIED}
    of_delta = {_series(found.delta)} if found.delta else {delta for _, delta in tried}
    return any((_series(found.spark), delta) in tried for delta in of_delta)


def untried(found: Versions) -> str | None:
    """What to say, in a line, of what does run: that it was not tried; None of what was."""
    if (found.spark, found.delta) in TRIED:
        return None
    return (
        f"{_named(found)} was not tried with this project, which was with {_tried()}: "
        "try it on a copy of the lake"
    )


def _named(found: Versions) -> str:
    return (
        f"Spark {found.spark} with Delta {found.delta}" if found.delta else f"Spark {found.spark}"
    )


def _tried() -> str:
    return ", ".join(f"{spark} with {delta}" for spark, delta in TRIED)


def _series(release: str) -> str:
    return ".".join(release.split(".")[:2])


SOURCES = PROJECT / "include" / "spark" / "java"
DELTA_CHECKSUMS = PROJECT / "include" / "jars.sha256"
NAME = "stateful-lake-{}.jar"


def java_sources() -> list[Path]:
    return sorted(SOURCES.rglob("*.java"))


def is_of_our_classes(jar: Path) -> bool:
    """Of today's sources or of others."""
    return jar.match(NAME.format("*"))


def classes_jar() -> Path:
    """Where the jar of today's sources lies: its name says of which it is, and beside what Delta."""
    sources = hashlib.sha256()
    for file in (*java_sources(), DELTA_CHECKSUMS):
        sources.update(file.read_bytes())
    return JARS / NAME.format(sources.hexdigest()[:16])
