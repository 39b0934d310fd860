"""What lies in landing beside plain files, and names that no table can have: refused one by one."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from include.lake.paths import Lake
from include.landing import landed_file
from include.landing.ingest import ingest
from include.landing.landed_content import landed_files
from include.landing.origin import waiting
from include.landing.parse_files import Parse
from tests.ingested import SIGNALS, quarantine_of, values_of
from tests.landed_files import Landing, signal
from tests.parsers import both_parsers

ODD_NAMES = (b"caf\xe9.jsonl", b"\\xff\xff.jsonl", b"\xff\xff.jsonl", b"\xfe/a.jsonl")


def refusals(lake: Lake) -> dict[str, str]:
    """The files that quarantine has as a whole, and why."""
    return {
        row["source_file"]: row["reason"] for row in quarantine_of(lake) if row["row_number"] == 0
    }


def land_deep(folder: Path, name: str, levels: int) -> None:
    """A file so deep that no path reaches it: from within each folder alone."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("a.jsonl", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


@both_parsers
def test_what_cannot_be_taken_is_refused_by_name_and_the_rest_is_taken(
    lake: Lake, landed: Landing, tmp_path: Path, parse: Parse
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_text(signal(5))
    landed.add("0.jsonl", [signal(0, value=1)])
    landed.add("in/1.jsonl", [signal(1, value=2)])
    for name in ODD_NAMES:
        path = landed.folder / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(signal(2))
    (landed.folder / "file.jsonl").symlink_to(outside / "secret.jsonl")
    (landed.folder / "folder").symlink_to(outside)
    (landed.folder / "round").symlink_to(".")
    (landed.folder / "loop.jsonl").symlink_to("loop.jsonl")
    (landed.folder / "nothing.jsonl").symlink_to("not here")
    (landed.folder / "2.jsonl").symlink_to("in/1.jsonl")
    os.mkfifo(landed.folder / "pipe.jsonl")
    land_deep(landed.folder, "d" * 250, 17)
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(landed.folder)
        server.bind("socket.jsonl")

    ingest(lake, SIGNALS, parse=parse)

    assert values_of(lake) == [("0.jsonl", 1), ("2.jsonl", 2), ("in/1.jsonl", 2)]
    found = refusals(lake)
    deep = next(name for name in found if name.startswith("ddd"))
    assert "too long" in found.pop(deep)
    assert "is not in landing" in found.pop("file.jsonl")
    for name in ("folder/", "round/", "loop.jsonl/"):
        assert "not followed" in found.pop(name)
    names = {"caf\\xe9.jsonl/", "\\\\xff\\xff.jsonl/", "\\xff\\xff.jsonl/", "\\xfe/"}
    assert found.keys() == names
    assert all("not UTF-8" in reason for reason in found.values())
    assert waiting(lake, SIGNALS) == 0


def test_a_folder_that_may_not_be_listed_is_refused_alone(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0)])
    landed.add("shut/b.jsonl", [signal(1)])
    scan = os.scandir

    def scandir(path: str) -> Any:
        if path.endswith("/shut/"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    ingest(lake, SIGNALS)
    monkeypatch.undo()
    assert "may not be listed" in refusals(lake)["shut/"]
    ingest(lake, SIGNALS)  # it was opened since
    assert [name for name, _ in values_of(lake)] == ["a.jsonl", "shut/b.jsonl"]


def test_a_file_that_is_written_to_while_it_is_read_is_refused(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    path = landed.add("grows.jsonl", [signal(0)])
    landed.add("whole.jsonl", [signal(1)])
    read = landed_file._read

    def read_meanwhile(*given: Any) -> bytes:
        found = read(*given)
        if found == path.read_bytes():
            with path.open("a") as writer:
                writer.write(signal(9) + "\n")
        return found

    monkeypatch.setattr(landed_file, "_read", read_meanwhile)
    ingest(lake, SIGNALS)
    assert [name for name, _ in values_of(lake)] == ["whole.jsonl"]
    assert "written to while it was read" in refusals(lake)["grows.jsonl"]


def test_a_pipe_that_has_taken_the_place_of_a_file_is_refused_and_not_waited_for(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    path = landed.add("a.jsonl", [signal(0)])
    listed = landed_files(lake, "signals")
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr("include.landing.origin.landed_files", lambda *_: listed)
    ingest(lake, SIGNALS)
    assert "no regular file" in refusals(lake)["a.jsonl"]
