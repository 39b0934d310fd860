"""Mistakes on the command line are one line and exit code 2, and never a traceback."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from include.cli import app, commands
from include.cli.__main__ import FILES, main
from include.ingest.bronze_tables import create_tables
from include.lake.delta_log import AGAIN
from include.lake.paths import Lake
from include.registry import source_named
from include.settings import PROJECT
from include.setup.install import OF_S3
from include.setup.java import S3

CLI = [sys.executable, "-P", "-m", "include.cli"]


def test_every_file_of_commands_is_loaded():
    files = {file.stem for file in (PROJECT / "include" / "cli").glob("*.py")}
    assert files - {"__init__", "__main__", "app", "scaffold"} == set(FILES)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["resed", "user_counts"], "wrong_argument"),
        (["rebuild", "user_cuonts"], "unknown_stream"),
        (["reingest", "signal"], "unknown_source"),
        (["rebuild", "user_counts", "--aply"], "wrong_argument"),
        (["rebuild"], "wrong_argument"),
        (["rebuild", "user_counts", "--buckets", "many"], "wrong_argument"),
        (["rebuild", "user_counts", "--until", "soon"], "wrong_argument"),
        (["rebuild", "user_counts", "--until", "9999-12-31T23:59:59-23:00"], "wrong_argument"),
        (["restate", "user_counts", "2026-11-31", "2026-12-02"], "wrong_argument"),
        (["restate", "user_counts", "2026-11-30T25:00", "2026-12-02"], "wrong_argument"),
        (["maintain", "user_counts", "--lake", "/no/lake"], "no_lake"),
        (["validate", "user_count"], "unknown_stream"),
        (["new", "Page-Views"], "wrong_argument"),
        (["new", "user_counts"], "name_taken"),
        (["new", "class"], "wrong_argument"),
        (["test", "signal"], "unknown_stream"),
        (["test", "signals"], "nothing_there"),
        (["sample-data", "--source", "nothing"], "unknown_source"),
        (["sample-data", "--late-share", "2"], "wrong_argument"),
        (["sample-data", "--start", "9999-12-31T23:00:00Z", "--events", "9"], "unreadable_lake"),
        (["run", "--port", "65536"], "wrong_argument"),
        (["report", "nobody"], "unknown_stream"),
        (["report", "--days", "0"], "wrong_argument"),
        (["report", "--days", "5"], "wrong_argument"),
        (["explain", "nobody", "ann", "--json"], "unknown_stream"),
        (["explain", "device_signals", "seventeen", "--json"], "wrong_argument"),
        (["sample-data", "--lake", "/dev/null/lake"], "unreadable_lake"),
    ],
)
def test_a_mistake_is_one_line_with_its_code_and_exit_code_2(
    words, code, lake, monkeypatch, capsys
):
    monkeypatch.setenv("LAKE", lake.root)
    assert main(words) == 2
    out, error = capsys.readouterr()
    assert error.endswith(f" ({code})\n")
    assert (error[:7], error.count("\n"), bool(out)) == ("error: ", 1, "--json" in words)


def test_what_was_done_is_0_and_what_failed_is_1(lake, monkeypatch, capsys):
    monkeypatch.setenv("LAKE", lake.root)
    for code, said in ((0, 0), (1, 1), (2, 2), (70, 1), (-9, 1), (130, 130)):
        monkeypatch.setattr(commands.run_local, "run_stream", lambda lake, stream, code=code: code)
        assert main(["stream", "user_counts"]) == said


def test_a_lake_may_be_named_from_home_and_by_the_environment(monkeypatch, tmp_path):
    asked: list[Lake] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(
        commands.run_local, "run_stream", lambda lake, stream: asked.append(lake) or 0
    )
    assert main(["stream", "user_counts", "--lake", "~/mine"]) == 0
    monkeypatch.setenv("LAKE", "~/mine")
    assert main(["stream", "user_counts"]) == 0
    assert {lake.root for lake in asked} == {str(tmp_path / "mine")}


def test_an_interrupted_command_says_so_by_its_exit_code(lake, monkeypatch):
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.run_local, "run_stream", interrupted)
    assert main(["stream", "user_counts", "--lake", lake.root]) == 130


@pytest.mark.parametrize(
    ("error", "is_again"),
    [
        (OSError(28, "No space left on device", "bronze"), True),
        # What is damaged is known of the table without a log alone.
        (DeltaError("Kernel error: no log\n   0: <unknown>\n   1: clone3\n"), False),
    ],
)
def test_what_the_machine_is_in_the_way_of_is_one_line(lake, monkeypatch, capsys, error, is_again):
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(commands.run_local, "run_stream", fail)
    assert main(["stream", "user_counts", "--lake", lake.root]) == 1
    said = capsys.readouterr().err
    assert (said.count("\n"), AGAIN in said) == (1, is_again)


def test_validate_says_which_file_is_wrong(monkeypatch, capsys):
    assert main(["validate"]) == 0
    assert "user_counts" in capsys.readouterr().out
    monkeypatch.setattr("include.streams.user_counts.STREAM", 7)
    assert main(["validate", "--json"]) == 1
    found = {row["stream"]: row["error"] for row in json.loads(capsys.readouterr().out)}
    assert found.pop("user_counts")
    assert set(found.values()) == {None}


def test_validate_says_what_bronze_cannot_become(lake, monkeypatch, capsys):
    source = source_named("signals")
    create_tables(lake, source)
    assert main(["validate", "device_signals", "--lake", lake.root]) == 0
    fields = (source.fields[0], replace(source.fields[1], type="smallint"))
    monkeypatch.setattr("include.streams.sources.SOURCES", (replace(source, fields=fields),))
    assert main(["validate", "device_signals", "--lake", lake.root]) == 1
    assert "smallint" in capsys.readouterr().out


def run_cli(*words: str, **options: object) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    return subprocess.Popen([*CLI, *words], env=environment, **options)


@pytest.mark.slow
def test_whoever_stops_reading_gets_no_traceback():
    process = run_cli("validate", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # before it has said anything
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 1


def test_the_shell_script_finds_its_project_from_anywhere(tmp_path):
    """Also through the link that set-up makes in .venv/bin."""
    link = tmp_path / "stateful"
    link.symlink_to(Path(PROJECT, "stateful"))
    completed = subprocess.run(
        [link],
        cwd=tmp_path,
        env=os.environ
        | {"_STATEFUL_COMPLETE": "complete_bash", "COMP_WORDS": "stateful rebu", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split() == ["rebuild"]


@pytest.mark.parametrize(("root", "is_fetched"), [("s3a://bucket/lake", True), ("lake", False)])
def test_what_s3_needs_is_fetched_for_a_lake_that_lies_there(root, is_fetched, monkeypatch):
    fetched: list[object] = []
    monkeypatch.setattr(app, "S3", S3._replace(folder=Path("/nowhere")))
    monkeypatch.setattr(app, "set_up", fetched.extend)
    app.found_lake(root)
    assert fetched == [OF_S3] * is_fetched
