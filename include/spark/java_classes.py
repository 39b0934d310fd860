"""Our classes in Java, of which set-up makes a jar (`include/setup/java.py`).

Local files without a process for each, and for a lake on S3 files that come to be once.
"""

import hashlib
from pathlib import Path

from include.settings import PROJECT
from include.spark.home import JARS

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
