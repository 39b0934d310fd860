"""The project's Python for executors on machines that do not have the project."""

import atexit
import shutil
import zipfile
from pathlib import Path
from tempfile import mkdtemp

from pyspark import SparkContext

from include.settings import PROJECT

PACKAGES = ("include", "spark_jobs")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold


def ship_project(context: SparkContext) -> None:
    """Let every task of `context` import the project, wherever it runs."""
    # The driver serves the file to executors for as long as it lives: they may come late.
    folder = mkdtemp(prefix="project-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, "project.zip")
    zip_project(PROJECT, archive)
    context.addPyFile(str(archive))


def zip_project(project: Path, archive: Path) -> None:
    """The Python files of `project`'s packages into `archive`: the same bytes for the same files."""
    files = sorted(file for package in PACKAGES for file in (project / package).rglob("*.py"))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(project).as_posix(), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, file.read_bytes())
