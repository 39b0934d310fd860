"""What `new` writes is right as it stands, and its own test says so."""

import importlib
import inspect
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import include.streams
from include.cli import author
from include.cli.__main__ import main
from include.cli.scaffold import files_of_tests, new_source, new_stream
from include.fold.testing.check import check_fold
from include.landing.landed_values import RefusedError
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
    """What a module says when it is run there."""
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
def test_a_new_source_and_new_streams_are_right_and_pass_their_tests(project, monkeypatch, capsys):
    monkeypatch.setattr(author, "PROJECT", project)
    assert main(["new", "source", "page_requests"]) == 0
    said = capsys.readouterr().out
    assert "tests/streams/test_source_page_requests.py" in said
    assert commands_in(said) == ["test page_requests"]
    written = runpy.run_path(str(project / "include/streams/sources.py"))["SOURCES"]
    monkeypatch.setattr("include.streams.sources.SOURCES", written)
    assert main(["new", "stream", "pages", "--source", "page_requests"]) == 0
    assert main(["new", "stream", "per_device", "--source", "signals"]) == 0
    assert main(["new", "stream", "pages"]) == 2  # it is there

    right = [line.split() for line in run(project, "include.cli", "validate").splitlines()]
    assert {name for name, _ in right} >= {"pages", "per_device", "user_counts"}
    assert {said for _, said in right} == {"right"}
    assert "3 passed" in run(project, "include.cli", "test", "pages")
    assert "2 passed" in run(project, "include.cli", "test", "page_requests")
    assert "8 passed" in run(project, "pytest", "-q", "tests/streams")
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


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, *fields: Field) -> Any:
    """The module of a new stream of a source with these fields."""
    new_stream(folder, "orders_so_far", orders(*fields))
    monkeypatch.setattr(include.streams, "__path__", [str(folder / "include" / "streams")])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "include.streams.orders_so_far", raising=False)
    importlib.invalidate_caches()
    return importlib.import_module("include.streams.orders_so_far")


def test_a_key_that_need_not_be_there_may_be_none(tmp_path, monkeypatch):
    fold = written(tmp_path, monkeypatch, replace(COUNTRY, required=False)).FOLD
    check_fold(fold, examples=40)


NOT_FOR_KEYS = ("Events", "emitted_at", "emitted_date", "removed", "class", "_id")


def test_names_that_python_or_the_table_has_are_passed_over(tmp_path, monkeypatch):
    fields = [replace(COUNTRY, name=name) for name in NOT_FOR_KEYS]
    module = written(tmp_path, monkeypatch, *fields, COUNTRY)
    assert module.FOLD.keys.names == ("country",)
    assert module.Event._fields == (*NOT_FOR_KEYS[:-2], "country", "event_time_us")
    check_fold(module.FOLD, examples=40)


@pytest.mark.parametrize("name", NOT_FOR_KEYS)
def test_a_source_with_no_other_name_is_refused_before_anything_is_written(tmp_path, name):
    with refused("wrong_setting", subject="orders"):
        new_stream(tmp_path, "orders_so_far", orders(replace(COUNTRY, name=name)))
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def page_requests(tmp_path, monkeypatch) -> dict[str, Any]:
    """The names of the test that `new` writes beside a source, whose declaration is as it was."""
    shutil.copytree(PROJECT / "include" / "streams", tmp_path / "include" / "streams")
    sources, test = new_source(tmp_path, "page_requests")
    monkeypatch.setattr("include.streams.sources.SOURCES", runpy.run_path(str(sources))["SOURCES"])
    return runpy.run_path(str(test))


def declared(page_requests: dict[str, Any], **changed: object) -> dict[str, Any]:
    """These names with another declaration, as after an edit of sources.py."""
    source = replace(page_requests["SOURCE"], **changed)
    page_requests["test_a_row_as_producers_send_it_is_admitted"].__globals__["SOURCE"] = source
    return page_requests


def passes(test: Callable[[], None]) -> bool:
    try:
        test()
    except (AssertionError, RefusedError, pytest.fail.Exception):
        return False
    return True


NOTE = Field(name="note", type="string", comment="Remarks", required=False)
LOCALE = Field(name="locale", type="string", comment="Language")


def test_the_test_of_a_source_goes_on_passing_where_a_row_as_it_was_is_still_right(page_requests):
    fields = (NOTE, *page_requests["SOURCE"].fields[::-1])
    tests = declared(page_requests, fields=fields, comment="Other", rescue=False)
    assert all(passes(test) for name, test in tests.items() if name.startswith("test_"))


@pytest.mark.parametrize("changed", [{"time_field": "at"}, {"fields": (LOCALE,)}])
def test_the_test_of_a_source_says_where_its_row_is_to_follow_an_edit(page_requests, changed):
    tests = declared(page_requests, **changed)
    assert passes(tests["test_a_row_without_its_time_goes_to_the_quarantine"])
    as_sent = tests["test_a_row_as_producers_send_it_is_admitted"]
    assert not passes(as_sent)
    assert "ADMITTED" in inspect.getsource(as_sent)


def test_a_stream_and_a_source_of_one_name_are_tested_together(monkeypatch):
    monkeypatch.setattr("include.cli.scaffold.stream_names", lambda: ("signals",))
    names = [file.name for file in files_of_tests(PROJECT, "signals")]
    assert names == ["test_signals.py", "test_source_signals.py"]
