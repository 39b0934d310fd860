"""One fresh copy of the project and its first `make run`, for all tests of the group "make run"."""

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.make_run import Project


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("fresh"))
    yield project
    shutil.rmtree(project.folder)  # a gigabyte of packages


@pytest.fixture(scope="session")
def first_run(project) -> str:
    """What the first `make run ONCE=1` said."""
    process = project.make_run("ONCE=1")
    output = process.communicate()[0]
    assert process.returncode == 0, output
    return output
