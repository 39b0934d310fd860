"""Fixtures of e2e tests: one fresh copy of the project and its first `make run`; one object store."""

import shutil
from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest

from include.lake.paths import Lake, made_lake
from tests.e2e.make_run import Project, listeners_of
from tests.e2e.object_store import BUCKET, ObjectStore, running_store


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
        listeners |= listeners_of(process.pid)
    assert process.wait() == 0, said
    return Run(said, listeners)


@pytest.fixture(scope="session")
def first_run(watched_run) -> str:
    """The output of the first `make run ONCE=1`."""
    return watched_run.said


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Iterator[ObjectStore]:
    with running_store(tmp_path_factory.mktemp("store") / "s3") as store:
        yield store


@pytest.fixture
def s3_lake(store, monkeypatch) -> Lake:
    """A lake of its own in the bucket, for this process and those that it starts."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return made_lake(f"s3://{BUCKET}/{uuid4().hex}")
