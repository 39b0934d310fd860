"""One fresh copy of the project and its first `make run`, for all tests of the group "make run"."""

import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.e2e.make_run import Project, listeners_of


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("fresh"))
    yield project
    shutil.rmtree(project.folder)  # a gigabyte of packages


class Run(NamedTuple):
    said: str
    listeners: set[str]


@pytest.fixture(scope="session")
def watched_run(project) -> Run:
    """The first `make run ONCE=1`, and at what addresses it took connections, jobs included."""
    process = project.make_run("ONCE=1")
    said, listeners = "", set()
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        listeners |= listeners_of(project.folder)
    assert process.wait() == 0, said
    return Run(said, listeners)


@pytest.fixture(scope="session")
def first_run(watched_run) -> str:
    """What the first `make run ONCE=1` said."""
    return watched_run.said
