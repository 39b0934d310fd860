"""The Delta jars in .jars: fetched once, by Spark's own resolver, and known by checksum.

Spark brings Ivy, so no other tool and no address is needed. `packages=` on every job
would resolve them again for each run (15 s); the jobs name the files instead.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from include.setup.java import SetupError
from include.spark.conf import JARS

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
CHECKSUMS = Path(__file__).resolve().parents[1] / "jars.sha256"


def wanted_jars() -> dict[str, str]:
    """File name to SHA-256 of each jar that the jobs need."""
    lines = (line.split() for line in CHECKSUMS.read_text().splitlines())
    return {name: checksum for checksum, name in lines}


def missing_jars(folder: Path = JARS) -> list[str]:
    """The wanted jars that are not in `folder`, or not as they should be."""
    return [
        name
        for name, checksum in wanted_jars().items()
        if not _has_checksum(folder / name, checksum)
    ]


def fetch_jars(python: Path, folder: Path = JARS) -> None:
    """Fetch the wanted jars into `folder`, and remove all others from it.

    A jar of another version left there would be on the class path too.
    """
    folder.mkdir(exist_ok=True)
    ivy = folder / "ivy"
    try:
        _resolve(python, ivy, folder / "fetch.log")
        for name, checksum in wanted_jars().items():
            _take(ivy / "jars" / name, folder / name, checksum)
    finally:
        shutil.rmtree(ivy, ignore_errors=True)
    for jar in folder.glob("*.jar"):
        if jar.name not in wanted_jars():
            jar.unlink()


def _resolve(python: Path, ivy: Path, log: Path) -> None:
    """Let spark-submit run an empty program with the package: what it needs lands in `ivy`."""
    shutil.rmtree(ivy, ignore_errors=True)
    ivy.mkdir()
    program = ivy / "empty.py"
    program.touch()
    spark_home = _spark_home(python)
    command: list[str | Path] = [
        *(spark_home / "bin" / "spark-submit", "--master", "local[1]"),
        *("--packages", PACKAGE, "--conf", f"spark.jars.ivy={ivy}", program),
    ]
    options = [os.environ.get("SPARK_SUBMIT_OPTS", ""), *proxy_options(getproxies())]
    environment = os.environ | {
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": str(python),
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }
    with log.open("w") as output:
        result = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        )
    if result.returncode != 0:
        lines = [line for line in log.read_text().splitlines() if line.strip()]
        tail = "\n".join(lines[-10:])
        raise SetupError(
            f"{PACKAGE} could not be fetched. Can this machine reach the package repository? "
            f"Repeat the command when it can. The end of {log}:\n{tail}"
        )


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
            raise SetupError(f"{scheme}_proxy in the environment: {error}") from error
        if host:
            options += [f"-D{scheme}.proxyHost={host}", f"-D{scheme}.proxyPort={port}"]
    if direct := proxies.get("no"):
        # ".example.com" means all below it, as Java's "*.example.com".
        hosts = (host.strip() for host in direct.split(","))
        shown = (f"*{host}" if host.startswith(".") else host for host in hosts if host)
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(shown)}")
    return options


def _take(fetched: Path, jar: Path, checksum: str) -> None:
    if not _has_checksum(fetched, checksum):
        raise SetupError(f"{jar.name} as fetched is missing or not the one in {CHECKSUMS}")
    partial = jar.with_suffix(".part")
    shutil.copyfile(fetched, partial)
    partial.rename(jar)


def _has_checksum(file: Path, checksum: str) -> bool:
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == checksum


def _spark_home(python: Path) -> Path:
    # Asked of the interpreter: this process may be the system's Python, without pyspark.
    code = "import importlib.util as u; print(u.find_spec('pyspark').submodule_search_locations[0])"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(result.stdout.strip())
