"""The machine's Java: which one Spark will start, and whether it can run Spark.

Looked up as spark-submit does: JAVA_HOME first, then PATH.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

SUPPORTED = (17, 21)
ADVICE = "install one (Debian: apt-get install openjdk-17-jre-headless) or name it with JAVA_HOME="
NEEDED = "Java 17 or 21 is needed"


class SetupError(Exception):
    """The machine lacks something, and the message says what to do about it."""


def check_java(environment: Mapping[str, str]) -> None:
    """Raises SetupError unless spark-submit will find a Java that Spark runs on."""
    java = _find_java(environment)
    version = java_version(_version_text(java))
    if version is None:
        raise SetupError(f"{NEEDED}, and {java} does not say which it is: {ADVICE}")
    if version not in SUPPORTED:
        raise SetupError(f"{NEEDED}, {java} is Java {version}: {ADVICE}")


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`; Java 8 calls itself 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _find_java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise SetupError(f"{NEEDED}, JAVA_HOME={home} has no bin/java: correct it, or {ADVICE}")
        return str(java)
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise SetupError(f"{NEEDED}, none found: {ADVICE}")
    return found


def _version_text(java: str) -> str:
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{NEEDED}, and {java} does not start ({error}): {ADVICE}") from error
    return result.stderr + result.stdout
