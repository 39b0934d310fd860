"""Airflow's parts as processes: one that ends is named, with what it said last."""

import os
import stat

import pytest

from include.airflow import local_airflow as module
from include.airflow.local_airflow import AirflowFailedError, Parts
from include.lake.lease import wait_until
from tests.refused import refused


@pytest.fixture
def parts(tmp_path, monkeypatch) -> Parts:
    """Whose `airflow` says which part it is, and fails."""
    airflow = tmp_path / "python"
    airflow.write_text('#!/bin/sh\necho "I am $3, umask $(umask)"; exit 1\n')
    airflow.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(airflow))
    return Parts({"PATH": "/bin:/usr/bin"}, tmp_path / "logs")


def died(parts: Parts) -> bool:
    try:
        parts.check_alive()
    except AirflowFailedError:
        return True
    return False


def test_a_part_that_ends_by_itself_is_named_with_the_end_of_its_log(parts):
    parts.check_alive()
    parts.start("scheduler", "scheduler")
    assert wait_until(lambda: died(parts), 60)
    with refused("airflow_failed", subject="scheduler"):
        parts.check_alive()
    with pytest.raises(AirflowFailedError):
        parts.wait()


def test_a_command_that_fails_is_named(parts):
    with refused("airflow_failed", subject="database"):
        parts.finish("database", "db", "migrate")
    parts.check_alive()


@pytest.mark.parametrize(("name", "umask"), [("server", 0o077), ("scheduler", 0o022)])
def test_logs_are_their_owners_alone_and_all_that_but_tasks_write(parts, name, umask):
    """Tasks write the lake, as the person's own umask says."""
    before = os.umask(0o022)
    try:
        with pytest.raises(AirflowFailedError, match=rf"I am x, umask 0*{umask:o}\b"):
            parts.finish(name, "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(parts.log(name).stat().st_mode) == 0o600


def test_it_is_not_waited_for_what_has_ended(parts):
    parts.start("server", "api-server")
    with refused("airflow_failed", subject="server"):
        parts.wait_until(lambda: False)
