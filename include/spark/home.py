"""Spark's folder as jobs are given it: the package's own, but for the archive with its Python.

What lies in SPARK_HOME/python/lib/pyspark.zip comes before all else on the path of a driver and its
workers, and has no compiled files: each of a run's six Python processes compiled it anew, a fifth of
a small run. Where there is no such archive they import the package that is installed.
"""

import hashlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from include.settings import PROJECT, SettingsError

# What set-up fetched and made for jobs.
JARS = PROJECT / ".jars"

# All that the scripts look for by which jobs are started.
LINKED = ("bin", "conf", "jars", "sbin")


def spark_package() -> Path:
    """The folder of the package pyspark that a job imports, which has no PYTHONPATH of the caller's;
    SettingsError where it is not installed."""
    of_caller = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    found = PathFinder.find_spec("pyspark", [path for path in sys.path if path not in of_caller])
    if found is None or not found.submodule_search_locations:
        told = "pyspark is not installed here"
        raise SettingsError(told, code="not_installed", command="./stateful validate")
    return Path(next(iter(found.submodule_search_locations)))


def spark_home(package: Path) -> Path:
    """A folder of links into `package`, made when it is first asked for; the package itself where no link
    can be made: slower, and right."""
    # A name for each package: the JVM of another job may be reading jars through these links.
    name = hashlib.sha256(os.fsencode(package)).hexdigest()[:8]
    home = JARS / f"spark-{name}"
    try:
        for part in LINKED:
            if (package / part).is_dir() and not (home / part).is_symlink():
                _link(home / part, package / part)
    except OSError:
        return package
    return home


def _link(link: Path, to: Path) -> None:
    """Of two jobs that make it at once the second puts the same in the place of the first's."""
    link.parent.mkdir(parents=True, exist_ok=True)
    made = link.with_name(f".{link.name}-{os.getpid()}")
    made.unlink(missing_ok=True)  # of a process that was killed, and had this number
    made.symlink_to(to)
    try:
        made.replace(link)
    finally:
        made.unlink(missing_ok=True)
