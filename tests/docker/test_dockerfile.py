"""include/docker/Dockerfile, without a container engine: its words checked, its steps replayed.

Not replayed: the base image, Debian's packages, the user and its folders (RUN steps that begin as
in ONLY_IN_AN_IMAGE).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from include.setup.java import DELTA, S3
from include.spark.conf import classes_jar
from tests.compose import OUR_IMAGE, SERVICES

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "include" / "docker" / "Dockerfile"
WORKDIR, VENV = "/opt/stateful-lake", "/opt/venv"
ONLY_IN_AN_IMAGE = ("apt-get", "useradd")
# Of this environment, and not of the one that the steps make.
OURS = ("PYTHON", "PYSPARK_", "SPARK_", "AIRFLOW")


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its text, continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, text) for name, text in found]


def texts(wanted: str) -> list[str]:
    return [text for name, text in instructions() if name == wanted]


def test_the_base_is_pinned_to_a_version_of_the_python_that_the_project_has():
    (base,) = texts("FROM")
    version = re.fullmatch(r"python:(\d+\.\d+)\.\d+-slim-bookworm", base)
    assert version
    supported = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert supported
    assert version[1] == supported[1]


def test_what_is_copied_and_nothing_else_is_sent_to_the_build():
    sent = {source for text in texts("COPY") for source in text.split()[:-1]}
    top = {source.partition("/")[0] for source in sent}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == top


def test_the_image_has_the_places_that_compose_names():
    assert texts("WORKDIR") == [WORKDIR]
    assert f"PATH={VENV}/bin:$PATH" in texts("ENV")[0]
    prepared = next(text for text in texts("RUN") if "useradd" in text)
    folders = set(prepared.partition("chown")[2].split())
    targets = {
        volume.split(":")[1]
        for service in SERVICES.values()
        if service["image"].startswith(OUR_IMAGE)
        for volume in service.get("volumes", ())
    }
    # Else the volume would belong to root, and nothing could be written.
    assert targets <= folders
    assert set(prepared.partition("mkdir -p")[2].partition("&&")[0].split()) <= folders


def test_nothing_runs_as_root():
    user = re.search(r"useradd .*?(\w+) &&", next(t for t in texts("RUN") if "useradd" in t))
    assert user
    assert instructions()[-1] == ("USER", user[1])
    assert not [name for name, service in SERVICES.items() if "user" in service]


def copy(text: str, project: Path) -> None:
    """Copy as Docker does: of a folder, its content."""
    *sources, target = text.split()
    (project / target).mkdir(parents=True, exist_ok=True)
    for source in (ROOT / source for source in sources):
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, project / target, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy(source, project / target)


def python_of_the_base_image(folder: Path) -> Path:
    """A folder with `python`, which not every machine has, outside of any virtual environment."""
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys._base_executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


@pytest.mark.full
@pytest.mark.spark
def test_the_steps_run_in_a_clean_folder(tmp_path):
    """All but what only an image has; then the image's own commands start."""
    project, venv = tmp_path / "project", tmp_path / "venv"
    project.mkdir()
    base = python_of_the_base_image(tmp_path / "bin")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
        "PATH": f"{venv}/bin:{base}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
    }
    for name, text in instructions():
        if name == "COPY":
            copy(text, project)
        if name == "RUN" and not text.startswith(ONLY_IN_AN_IMAGE):
            command = text.replace(VENV, str(venv)).replace(WORKDIR, str(project))
            subprocess.run(["sh", "-ec", command], cwd=project, env=environment, check=True)
    assert DELTA.missing(project / ".jars") == []
    assert S3.missing(project / ".jars/s3") == []
    # Under the name by which jobs look for it: that of its sources.
    assert (project / ".jars" / classes_jar().name).is_file()
    for words in (
        ["airflow", "version"],
        ["python", "-c", "import psycopg2, asyncpg, pyspark, delta, deltalake"],
        ["python", "-c", "import include.docker.prepare_airflow"],
        ["spark-class", "org.apache.spark.deploy.worker.Worker", "--help"],
    ):
        subprocess.run(words, cwd=project, env=environment, check=True)
