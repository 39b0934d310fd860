"""What workers without the project are sent of it."""

import shutil
import subprocess
import sys

import pytest

from include.registry import all_streams
from include.settings import PROJECT
from spark_jobs.job import PACKAGES, zip_project


def test_the_same_project_is_shipped_as_the_same_bytes(tmp_path):
    copy, archives = tmp_path / "copy", [tmp_path / "one.zip", tmp_path / "two.zip"]
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, copy / package, copy_function=shutil.copyfile)
    zip_project(PROJECT, archives[0])
    zip_project(copy, archives[1])  # with times, and maybe an order, of its own
    assert archives[0].read_bytes() == archives[1].read_bytes()


@pytest.mark.slow
def test_what_is_shipped_can_be_imported_where_the_project_is_not(tmp_path):
    archive = tmp_path / "project.zip"
    zip_project(PROJECT, archive)
    modules = ["spark_jobs.engines.live", "spark_jobs.engines.replay", "spark_jobs.tables.landing"]
    modules += [f"include.streams.{stream.name}" for stream in all_streams()]
    code = f"import sys, importlib; sys.path.append({str(archive)!r})\n"
    code += f"for name in {modules}: print(importlib.import_module(name).__file__)"
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    expected = [f"{archive}/{module.replace('.', '/')}.py" for module in modules]
    assert said.split() == expected
