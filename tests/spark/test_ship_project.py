"""What workers without the project are sent of it."""

import subprocess
import sys

import pytest

from include.registry import all_streams
from include.settings import PROJECT
from spark_jobs.job import zip_project


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
