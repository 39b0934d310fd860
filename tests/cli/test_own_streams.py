"""Streams in a folder of one's own, STREAMS, in place of the shipped ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from include.settings import PROJECT

SOURCES = """
from include.settings import Field, Source

PAGE = Field(name="page", type="string", comment="What was looked at")
SOURCES = (Source(name="visits", time_field="at", comment="Visits", fields=(PAGE,)),)
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A folder with sources alone, named as somebody in its parent folder would."""
    folder = tmp_path / "my streams"
    folder.mkdir()
    (folder / "sources.py").write_text(SOURCES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMS", folder.name)
    return folder


def run(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *words],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def stateful(*words: str, code: int = 0) -> str:
    return run("-m", "include.cli", *words, code=code)


@pytest.mark.slow
def test_they_are_made_validated_and_tested_there_and_the_shipped_ones_are_gone(own):
    stateful("new", "pages")
    assert {file.name for file in own.rglob("*.py")} == {"sources.py", "pages.py", "test_pages.py"}
    assert stateful("validate").split() == ["pages", "right"]
    assert "3 passed" in stateful("test", "pages")
    (own / "wrong.py").write_text("STREAM = 7")
    assert f"{own}/wrong.py" in stateful("validate", code=1)
    (own / "sources.py").write_text("SOURCES = 1 / 0")
    for command, code in (("validate", 1), ("status", 2), ("maintain", 2)):
        said = stateful(command, code=code)
        assert (f"{own}/sources.py" in said, said.count("\n")) == (True, 1)


@pytest.mark.airflow
def test_airflow_has_their_dags_alone_and_nobody_to_notify(own):
    stateful("new", "pages")
    shown = run(
        "-c",
        "from airflow.dag_processing.dagbag import DagBag\n"
        "from include.airflow.alerts import notifiers\n"
        f"bag = DagBag({str(PROJECT / 'dags')!r})\n"
        "print(*bag.dags, len(bag.import_errors), notifiers())",
    )
    *dags, errors, found = shown.splitlines()[-1].split()
    assert {*dags} == {"deploy", "stream_pages", "table_maintenance"}
    assert (errors, found) == ("0", "()")
