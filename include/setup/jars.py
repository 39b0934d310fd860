"""The jars of Delta, and of Hadoop's S3 connector, in .jars: fetched once, known by checksum.

Spark brings Ivy, so no other tool and no address is needed. `packages=` on every job
would resolve them again for each run (15 s); the jobs name the files instead.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from include.lake.errors import StatefulError
from include.spark.conf import S3_JARS
from include.spark.home import JARS

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
