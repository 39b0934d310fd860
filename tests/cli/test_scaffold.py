"""Files that `new` writes are valid, and their own test passes."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from include.cli import author
from include.cli.__main__ import main
from include.cli.author import new_stream
from include.settings import PROJECT, Field, Source
from tests.refused import commands_in, refused


@pytest.fixture
def project(tmp_path) -> Path:
    """A copy of the project, as `new` changes it."""
    for name in ("include", "pyproject.toml"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(PROJECT / name, target)
    return tmp_path


def run(project: Path, *words: str) -> str:
    """The output of a module that is run there."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", *words],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.e2e
def test_new_streams_are_right_and_pass_their_tests(project, monkeypatch, capsys):
    monkeypatch.setattr(author, "PROJECT", project)
    assert main(["new", "pages", "--source", "user_events"]) == 0
    said = capsys.readouterr().out
    assert "tests/streams/test_pages.py" in said
    assert commands_in(said) == ["test pages"]
    assert main(["new", "per_device", "--source", "signals"]) == 0
    assert main(["new", "pages"]) == 2  # it is there

    right = [line.split() for line in run(project, "include.cli", "validate").splitlines()]
    assert {name for name, _ in right} >= {"pages", "per_device", "user_counts"}
    assert {said for _, said in right} == {"right"}
    assert "3 passed" in run(project, "include.cli", "test", "pages")
    assert "6 passed" in run(project, "pytest", "-q", "tests/streams")
    run(project, "ruff", "check", ".")
    run(project, "ruff", "format", "--check", ".")


AMOUNT = Field(name="amount", type="decimal(12,2)", comment="What it comes to")
COUNTRY = Field(name="country", type="string", comment="From where")


def orders(*fields: Field) -> Source:
    return Source(name="orders", time_field="at", comment="Orders", fields=fields)


def test_a_stream_leaves_out_what_events_cannot_have(tmp_path):
    stream, test = new_stream(tmp_path, "orders_so_far", orders(AMOUNT, COUNTRY))
    assert "    country: str\n    event_time_us: int\n" in stream.read_text()
    assert "amount" not in stream.read_text() + test.read_text()


def test_a_source_without_a_key_is_refused(tmp_path):
    with refused("wrong_setting", subject="orders"):
        new_stream(tmp_path, "orders_so_far", orders(AMOUNT))


@pytest.mark.parametrize("name", ["class", "_id"])
def test_a_source_with_no_other_name_is_refused_before_anything_is_written(tmp_path, name):
    with refused("wrong_setting", subject="orders"):
        new_stream(tmp_path, "orders_so_far", orders(replace(COUNTRY, name=name)))
    assert not [*tmp_path.iterdir()]
