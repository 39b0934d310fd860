"""The Java that jobs will find, and the jar of our own classes.

Spark brings a compiler, Janino: so a Java without one (a JRE) will do. It knows no lambda, infers few
types, and closes no resource of a `try` that is left by `return` (3.1.9): so the sources have none.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from include.setup.jars import SetupError
from include.spark.home import JARS
from include.spark.versions import NAME, classes_jar, java_sources

SUPPORTED_JAVA = (17, 21)
JAVA_NEEDED = "Java 17 or 21 is needed"
JAVA_ADVICE = (
    "install one (Debian: apt-get install openjdk-17-jre-headless) or name it with JAVA_HOME="
)

COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"  # Janino's command line
ALWAYS_THE_SAME = (1980, 1, 1, 0, 0, 0)


def java_of(environment: Mapping[str, str]) -> str:
    """The Java that spark-submit will find: it looks at JAVA_HOME first, then at PATH."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH"))
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "none found"
        raise SetupError(f"{JAVA_NEEDED}, {where}: {JAVA_ADVICE}", subject="java")
    return java


def check_java(environment: Mapping[str, str]) -> str:
    """What the Java that spark-submit will find says of itself; SetupError if Spark runs on none."""
    java = java_of(environment)
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(
            f"{JAVA_NEEDED}, {java} does not start ({error}): {JAVA_ADVICE}", subject="java"
        ) from error
    text = said.stderr + said.stdout
    version = java_version(text)
    if version not in SUPPORTED_JAVA:
        which = f"is Java {version}" if version else "does not say which it is"
        raise SetupError(f"{JAVA_NEEDED}, {java} {which}: {JAVA_ADVICE}", subject="java")
    return text


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`; Java 8 calls itself 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def compile_classes(python: Path) -> None:
    """Make the jar of our classes, in the place of one of other sources.

    Of the same sources the same bytes. `python` is that of the virtual environment with Spark.
    """
    (spark,) = python.parents[1].glob("lib/python*/site-packages/pyspark/jars")
    path = ":".join(map(str, [*JARS.glob("io.delta_*.jar"), *spark.glob("*.jar")]))
    command = [java_of(os.environ), "-cp", f"{spark}/*", COMPILER, "-classpath", path]
    with TemporaryDirectory() as folder:
        made = subprocess.run(
            [*command, "-d", folder, *map(str, java_sources())],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise SetupError(
                f"Java could not compile {java_sources()[0].parent}: {made.stderr}", subject="java"
            )
        _pack(Path(folder), classes_jar())
    for jar in (*JARS.glob(NAME.format("*")), *(JARS / "s3").glob(NAME.format("*"))):
        if jar != classes_jar():
            jar.unlink()


def _pack(folder: Path, jar: Path) -> None:
    unfinished = jar.with_suffix(".new")
    with ZipFile(unfinished, "w", ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*.class")):
            entry = ZipInfo(str(file.relative_to(folder)), ALWAYS_THE_SAME)
            packed.writestr(entry, file.read_bytes(), ZIP_DEFLATED)
    # A jar that a power cut leaves empty would count as made.
    with unfinished.open("rb") as made:
        os.fsync(made.fileno())
    unfinished.replace(jar)
