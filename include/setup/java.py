"""The Java that jobs will find, and the jar of our own classes.

Spark brings a compiler, Janino: so a Java without one (a JRE) will do. It knows no lambda, infers few
types, and closes no resource of a `try` that is left by `return` (3.1.9): so the sources have none.

The jars of Delta, and of Hadoop's S3 connector, in .jars: fetched once, known by checksum.

Spark brings Ivy, so no other tool and no address is needed. `packages=` on every job
would resolve them again for each run (15 s); the jobs name the files instead.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from urllib.request import getproxies
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from include.lake.errors import StatefulError
from include.spark.conf import JARS, NAME, S3_JARS, classes_jar, java_sources

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
CHECKSUMS = Path(__file__).resolve().parents[1] / "jars.sha256"


class SetupError(StatefulError):
    """The machine lacks something, and the message says what to do about it."""

    code = "not_installed"


def not_fetched(what: str, source: str, log: Path) -> SetupError:
    """That `what` happened, most likely for want of a network."""
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    tail = "\n".join(lines[-10:])
    return SetupError(
        f"{what}. Can this machine reach the {source}? Repeat the command when it can. "
        f"The end of {log}:\n{tail}",
        subject=what,
    )


def wanted_jars(checksums: Path | None = None) -> dict[str, str]:
    """File name to SHA-256 of each jar that the jobs need."""
    lines = (line.split() for line in (checksums or CHECKSUMS).read_text().splitlines())
    return {name: checksum for checksum, name in lines}


def missing_jars(folder: Path = JARS, checksums: Path | None = None) -> list[str]:
    """The wanted jars that are not in `folder`, or not as they should be."""
    return [
        name
        for name, checksum in wanted_jars(checksums).items()
        if not (folder / name).is_file() or checksum_of(folder / name) != checksum
    ]


def checksum_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def fetch_jars(
    python: Path,
    folder: Path = JARS,
    package: str = PACKAGE,
    checksums: Path | None = None,
    without: Sequence[str] = (),
) -> None:
    """Fetch the wanted jars into `folder`, and remove all others from it.

    A jar of another version left there would be on the class path too.
    """
    folder.mkdir(exist_ok=True)
    ivy, wanted = folder / "ivy", wanted_jars(checksums)
    try:
        resolve(package, python, ivy, folder / "fetch.log", without)
        missing = missing_jars(ivy / "jars", checksums)
        for name in wanted.keys() - missing:
            (ivy / "jars" / name).replace(folder / name)
    finally:
        shutil.rmtree(ivy, ignore_errors=True)
    if missing:
        names = ", ".join(missing)
        raise SetupError(
            f"{names} as fetched is missing or not the one in {checksums or CHECKSUMS}",
            subject=names,
        )
    for jar in folder.glob("*.jar"):
        if jar.name not in wanted:
            jar.unlink()


def resolve(package: str, python: Path, ivy: Path, log: Path, without: Sequence[str] = ()) -> None:
    """Let spark-submit run an empty program with the package: what it needs lands in `ivy/jars`.

    But for what it would bring along of the packages `without`.
    """
    shutil.rmtree(ivy, ignore_errors=True)
    ivy.mkdir()
    program = ivy / "empty.py"
    program.touch()
    # Of its own virtual environment: this process may be the system's Python, without pyspark.
    (spark_home,) = python.parents[1].glob("lib/python*/site-packages/pyspark")
    command: list[str | Path] = [
        *(spark_home / "bin" / "spark-submit", "--master", "local[1]"),
        *("--packages", package, "--conf", f"spark.jars.ivy={ivy}"),
    ]
    if without:
        command += ["--exclude-packages", ",".join(without)]
    options = [os.environ.get("SPARK_SUBMIT_OPTS", ""), *proxy_options(getproxies())]
    environment = os.environ | {
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": str(python),
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }
    with log.open("w") as output:
        result = subprocess.run(
            [*command, program],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        )
    if result.returncode != 0:
        raise not_fetched(f"{package} could not be fetched", "package repository", log)


def proxy_options(proxies: Mapping[str, str]) -> list[str]:
    """The proxies that pip takes from the environment (`urllib`'s names), in Java's words.

    Raises SetupError when one is no address.
    """
    options = []
    for scheme in ("http", "https"):
        address = proxies.get(scheme, "")
        try:
            proxy = urlsplit(address if "//" in address else f"//{address}")
            host, port = proxy.hostname, proxy.port or 80
        except ValueError as error:  # its message has no user or password of the address
            raise SetupError(
                f"{scheme}_proxy in the environment: {error}",
                code="wrong_setting",
                subject=f"{scheme}_proxy",
            ) from error
        if host:
            options += [f"-D{scheme}.proxyHost={host}", f"-D{scheme}.proxyPort={port}"]
    if direct := proxies.get("no"):
        # ".example.com" means all below it, as Java's "*.example.com".
        hosts = (host.strip() for host in direct.split(","))
        shown = (f"*{host}" if host.startswith(".") else host for host in hosts if host)
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(shown)}")
    return options


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
        fetch_jars(python, S3_JARS, ",".join(PACKAGES), checksums=S3_CHECKSUMS, without=NOT_NEEDED)


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
