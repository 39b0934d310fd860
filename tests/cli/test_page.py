"""`./stateful report` and `metrics`: files and text, exit codes, mistakes in one line."""

import errno
from pathlib import Path

import pytest

from include.cli.__main__ import main
from include.lake.paths import Lake
from include.registry import stream_named, stream_names
from tests.page.history import write_history


@pytest.fixture
def filled(lake: Lake) -> Lake:
    write_history(lake, [stream_named("device_signals")], 3)
    return lake


@pytest.fixture
def unreadable(monkeypatch) -> None:
    """The disk does not give what runs have recorded."""

    def refused(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr("include.lake.ops.dataset_without_bounds", refused)


def test_a_report_has_all_streams(filled, tmp_path, capsys):
    file = tmp_path / "all.html"
    assert main(["report", "--to", str(file), "--lake", filled.root]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert all(f">{name}" in file.read_text() for name in stream_names())


def test_a_report_of_a_stream_is_of_that_alone(filled, tmp_path):
    file = tmp_path / "one.html"
    args = ["report", "user_counts", "--to", str(file), "--days", "7", "--lake", filled.root]
    assert main(args) == 0
    assert "device_signals" not in file.read_text()


@pytest.mark.parametrize("name", [[], ["user_counts"]])
@pytest.mark.usefixtures("unreadable")
def test_a_lake_that_cannot_be_read_gives_a_report_and_1(filled, tmp_path, name):
    file = tmp_path / "report.html"
    assert main(["report", *name, "--to", str(file), "--lake", filled.root]) == 1
    assert file.read_text()


def test_bronze_that_cannot_be_read_is_said_and_1(filled, tmp_path, capsys):
    Path(filled.bronze("signals"), "_delta_log").mkdir(parents=True)
    file = tmp_path / "report.html"
    assert main(["report", "--to", str(file), "--lake", filled.root]) == 1
    assert "device_signals" in capsys.readouterr().out
    assert main(["metrics", "--lake", filled.root]) == 1
    printed = capsys.readouterr()
    assert "device_signals" in printed.err
    assert 'until_lag_seconds{stream="device_signals"} ' in printed.out


def test_metrics_are_printed(filled, capsys, request):
    assert main(["metrics", "--lake", filled.root]) == 0
    assert 'stateful_lake_rows_30d{kind="in",stream="device_signals"} ' in capsys.readouterr().out
    request.getfixturevalue("unreadable")
    assert main(["metrics", "--lake", filled.root]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "stateful_lake_up 0.0"
