"""Whether the Spark and Delta that are installed fit each other, and the jar of our own classes beside them."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from include.settings import PROJECT, SettingsError
from include.spark.home import JARS

CORE_JAR = re.compile(r"spark-core_[\d.]+-(.+)\.jar")
DELTA_JAR = re.compile(r"io\.delta_delta-spark_(\d+\.\d+)_[\d.]+-.+\.jar")
PYTHON_VERSION = re.compile(r"^__version__\b.*=\s*['\"]([^'\"]+)", re.MULTILINE)


class Versions(NamedTuple):
    """What is installed; empty what is not."""

    spark: str  # by its jars
    spark_python: str  # by pyspark's Python files
    delta_for: str  # the series of Spark that the jar of Delta is made for


def installed(spark_home: Path, jars: Path = JARS) -> Versions:
    """The versions of the Spark in a folder, and of the Delta that jobs run with it."""
    file = spark_home / "version.py"
    said = PYTHON_VERSION.search(file.read_text()) if file.is_file() else None
    return Versions(
        _found(CORE_JAR, spark_home / "jars"),
        said[1] if said else "",
        delta_for=_found(DELTA_JAR, jars),
    )


def _found(pattern: re.Pattern[str], folder: Path) -> str:
    matches = (pattern.fullmatch(jar.name) for jar in sorted(folder.glob("*.jar")))
    return next((match[1] for match in matches if match), "")


def refuse_unfit(found: Versions) -> None:
    """SettingsError when parts of it do not fit."""
    if found.spark != found.spark_python:
        whole = found.spark or found.spark_python
        of_jars = f"of {found.spark}" if found.spark else "missing"
        raise SettingsError(
            f"Spark's jars are {of_jars}, its Python files of {found.spark_python or 'no version'}: the "
            "package pyspark-client, which has the same files, was installed over pyspark",
            code="unfit_versions",
            subject="pyspark",
            command=f".venv/bin/python -m pip install --force-reinstall --no-deps pyspark=={whole}",
        )
    if found.delta_for and found.delta_for != ".".join(found.spark.split(".")[:2]):
        raise SettingsError(
            f"the jar of Delta in {JARS} is for Spark {found.delta_for}, and Spark {found.spark} is "
            "installed: PACKAGE in include/setup/jars.py and include/jars.sha256 name the jar, "
            "requirements.in Spark",
            code="unfit_versions",
            subject="pyspark",
        )


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
