"""`make run` as a person starts it: in a fresh copy, with an empty home folder."""

import json
import re
import stat
import sys

import pytest
from deltalake import DeltaTable

from include.lake.ops import read_ops, runs_of
from include.registry import all_streams, ancestors_of
from include.stream_definition import load_definition
from tests.e2e.make_run import interrupt, is_loopback, processes_of, read_until

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.xdist_group("make run"),
]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def test_one_command_fills_every_table_on_a_machine_with_python_and_java_only(project, first_run):
    for stream in all_streams():
        # More than one where a tick of its schedule has passed meanwhile.
        runs = runs_of(project.lake, stream.name, ["run_stream"], outcome="succeeded").to_pylist()
        assert all(run["until"] is not None for run in runs)
        rows = DeltaTable(project.lake.table(stream.name)).to_pyarrow_dataset().count_rows()
        assert 0 < rows <= sum(run["rows_out"] for run in runs)  # an update table has one a key
    ingests = [run for run in read_ops(project.lake, "runs").to_pylist() if run["rows_landed"]]
    assert {run["subject"] for run in ingests} == {stream.source for stream in all_streams()}
    for run in ingests:
        assert run["rows_landed"] == run["rows_bronze"] + run["rows_quarantined"]


def test_it_says_where_things_are_and_shows_each_table(project, first_run):
    assert re.search(r"http://127\.0\.0\.1:\d+ +user admin, password \S+", first_run)
    assert project.lake.root in first_run
    for stream in all_streams():
        assert re.search(rf"{stream.name}: [\d,]+ rows, complete until 20", first_run)
        *_, root = stream.name, *ancestors_of(stream.name)
        mend = f"./stateful rebuild {root} --apply"
        if root == stream.name and load_definition(stream).fold.output_mode == "append":
            mend = f"backfill the Dag stream_{root}: From 20"
        assert mend in first_run
        # Not after the streams, which take minutes: who waits may watch.
        assert first_run.index("user admin, password") < first_run.index(f"{stream.name}: running")


def test_nothing_is_left_outside_the_project_or_running(project, first_run):
    # pip's cache, and what pip leaves by asking rustc for its version.
    assert {entry.name for entry in project.home.iterdir()} <= {".cache", ".rustup"}
    assert processes_of(project.folder) == {}


@linux
def test_it_takes_connections_of_this_machine_alone(watched_run):
    assert watched_run.listeners
    assert [each for each in watched_run.listeners if not is_loopback(each)] == []


def test_what_airflow_knows_is_its_owners_alone_and_the_password_in_one_file(project, first_run):
    home = project.folder / ".airflow"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    found = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [str(path) for path in found if path.stat().st_mode & 0o077] == []
    password = json.loads((home / "passwords.json").read_text())["admin"]
    files = [path for path in found if path.name != "passwords.json"]
    assert any("logs" in path.parts for path in files)
    assert [str(path) for path in files if password.encode() in path.read_bytes()] == []


@linux
def test_the_second_start_makes_nothing_changes_nothing_and_ctrl_c_ends_it_all(project, first_run):
    assert "installing the packages" in first_run
    assert "archiving the classes of Spark" in first_run
    assert (project.folder / ".jars" / "classes.jsa").is_file()
    files = project.table_files()
    process = project.make_run()
    try:
        again = read_until(process, "until Ctrl-C")
        assert "installing" not in again
        assert "making .venv" not in again
        assert "archiving" not in again
        assert processes_of(project.folder)
    finally:
        interrupt(process)
    assert processes_of(project.folder) == {}
    assert project.table_files() == files
