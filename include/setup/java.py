"""Java, the jars of Delta and of Hadoop's S3 connector, and the jar of our own classes.

Jars are fetched once into .jars and known by checksum: `packages=` would resolve them for each job
(15 s). Spark brings Ivy, which fetches them, and the compiler Janino, so that a JRE is enough. Janino
(3.1.9) has no lambdas, infers few types, and does not close a resource of a `try` that is left by `return`:
our sources have none of these.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from include.lake.errors import StatefulError
from include.spark.conf import JARS, NAME, S3_JARS, classes_jar, java_sources


class SetupError(StatefulError):
    """The machine lacks something; the message says how to get it."""

    code = "not_installed"


def not_fetched(what: str, source: str, log: Path) -> SetupError:
    """The error for a failed download, with the end of its log."""
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    tail = "\n".join(lines[-10:])
    return SetupError(
        f"{what}. Can this machine reach the {source}? Repeat the command when it can. "
        f"The end of {log}:\n{tail}",
        subject=what,
    )


class Jars(NamedTuple):
    """Jars that jobs need: their folder, the packages that bring them, and their SHA-256."""

    folder: Path
    packages: Sequence[str]
    checksums: Path
    without: Sequence[str] = ()  # dependencies that are left out

    def wanted(self) -> dict[str, str]:
        """The SHA-256 of each file name."""
        lines = (line.split() for line in self.checksums.read_text().splitlines())
        return {name: checksum for checksum, name in lines}

    def missing(self, folder: Path | None = None) -> list[str]:
        """The names of missing or damaged jars."""
        files = {name: (folder or self.folder) / name for name in self.wanted()}
        return [
            name
            for name, checksum in self.wanted().items()
            if not files[name].is_file() or checksum_of(files[name]) != checksum
        ]


def checksum_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def fetch_jars(jars: Jars, python: Path) -> None:
    """Fetch the jars into their folder, and remove all others, which would be loaded too."""
    folder = jars.folder
    folder.mkdir(exist_ok=True)
    ivy, wanted = folder / "ivy", jars.wanted()
    resolve(jars, python, ivy)
    if missing := jars.missing(ivy / "jars"):
        names = ", ".join(missing)
        raise SetupError(
            f"{names} as fetched is missing or not the one in {jars.checksums}", subject=names
        )
    for name in wanted:
        (ivy / "jars" / name).replace(folder / name)
    shutil.rmtree(ivy)
    for jar in folder.glob("*.jar"):
        if jar.name not in wanted:
            jar.unlink()


def resolve(jars: Jars, python: Path, ivy: Path) -> None:
    """Let spark-submit run an empty program with the packages, which puts their jars into `ivy/jars`."""
    shutil.rmtree(ivy, ignore_errors=True)
    ivy.mkdir()
    program = ivy / "empty.py"
    program.touch()
    # This process may be the system's Python, without pyspark.
    (spark_home,) = python.parents[1].glob("lib/python*/site-packages/pyspark")
    command: list[str | Path] = [
        *(spark_home / "bin" / "spark-submit", "--master", "local[1]"),
        *("--packages", ",".join(jars.packages), "--conf", f"spark.jars.ivy={ivy}"),
        *(("--exclude-packages", ",".join(jars.without)) if jars.without else ()),
    ]
    environment = os.environ | {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": str(python)}
    log = jars.folder / "fetch.log"
    with log.open("w") as output:
        result = subprocess.run(
            [*command, program],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        )
    if result.returncode != 0:
        names = ", ".join(jars.packages)
        raise not_fetched(f"{names} could not be fetched", "package repository", log)


SDK = "2.35.4"  # that of the connector
CHECKSUMS = Path(__file__).resolve().parents[1] / "jars.sha256"
DELTA = Jars(JARS, ["io.delta:delta-spark_4.2_2.13:4.4.0"], CHECKSUMS)
S3 = Jars(
    S3_JARS,
    [
        "org.apache.hadoop:hadoop-aws:3.5.0",
        f"software.amazon.awssdk:s3-transfer-manager:{SDK}",
        f"software.amazon.awssdk:apache-client:{SDK}",
    ],
    CHECKSUMS.with_name("jars_of_s3.sha256"),
    without=["software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl"],
)

JAVA_NEEDED = (
    "Java 17 or 21 is needed: install one (Debian: apt-get install openjdk-17-jre-headless) or name "
    "it with JAVA_HOME="
)

COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"  # Janino's command line


def java_of(environment: Mapping[str, str]) -> str:
    """The Java that spark-submit finds: of JAVA_HOME, or on PATH."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH"))
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "none found"
        raise SetupError(f"{where}. {JAVA_NEEDED}", subject="java")
    return java


def check_java(environment: Mapping[str, str]) -> str:
    """The output of `java -version`; raises SetupError without a Java that Spark runs on."""
    java = java_of(environment)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    text = said.stderr + said.stdout
    version = java_version(text)
    if version not in (17, 21):
        raise SetupError(f"{java} is Java {version}. {JAVA_NEEDED}", subject="java")
    return text


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 17; of Java 8, which says 1.8, it is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def compile_classes(python: Path) -> None:
    """Compile our classes against the Spark of a virtual environment's `python`."""
    (spark,) = python.parents[1].glob("lib/python*/site-packages/pyspark/jars")
    path = ":".join(map(str, [*JARS.glob("io.delta_*.jar"), *spark.glob("*.jar")]))
    command = [java_of(os.environ), "-cp", f"{spark}/*", COMPILER, "-classpath", path]
    with TemporaryDirectory(dir=JARS) as folder:
        classes = Path(folder, "classes")
        classes.mkdir()
        made = subprocess.run(
            [*command, "-d", str(classes), *map(str, java_sources())],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise SetupError(
                f"Java could not compile {java_sources()[0].parent}: {made.stderr}", subject="java"
            )
        Path(shutil.make_archive(f"{folder}/ours", "zip", classes)).replace(classes_jar())
    for jar in (*JARS.glob(NAME.format("*")), *(JARS / "s3").glob(NAME.format("*"))):
        if jar != classes_jar():
            jar.unlink()
