"""What lies in landing beside plain files is passed over; names that no table can have are refused one by one."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from include.ingest.ingest import ingest
from include.ingest.parse_files import Parse
from include.ingest.source_connector import waiting
from include.lake.paths import Lake
from tests.ingested import SIGNALS, quarantine_of, values_of
from tests.landed_files import Landing, signal
from tests.parsers import both_parsers

ODD_NAMES = (b"caf\xe9.jsonl", b"\\xff\xff.jsonl", b"\xff\xff.jsonl", b"\xfe/a.jsonl")


def refusals(lake: Lake) -> dict[str, str]:
    """The files that quarantine has as a whole, and why."""
    return {
        row["source_file"]: row["reason"] for row in quarantine_of(lake) if row["row_number"] == 0
    }


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
    (landed.folder / "nothing.jsonl").symlink_to("not here")
    os.mkfifo(landed.folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(landed.folder)
        server.bind("socket.jsonl")

    ingest(lake, SIGNALS, parse=parse)

    assert values_of(lake) == [("0.jsonl", 1), ("in/1.jsonl", 2)]
    found = refusals(lake)
    not_utf_8 = {"caf\\xe9.jsonl/", "\\xff\\xff.jsonl/", "\\xfe/a.jsonl/"}
    no_files = {"folder", "round", *(f"{n}.jsonl" for n in ("file", "nothing", "pipe", "socket"))}
    assert found.keys() == not_utf_8 | no_files
    assert waiting(lake, SIGNALS) == 0


def test_a_file_that_is_written_to_while_it_is_read_is_refused(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    path = landed.add("grows.jsonl", [signal(0)])
    landed.add("whole.jsonl", [signal(1)])
    stat = os.stat

    def write_before(asked: Any, **named: Any) -> os.stat_result:
        if asked == str(path):
            with path.open("a") as writer:
                writer.write(signal(9) + "\n")
        return stat(asked, **named)

    monkeypatch.setattr(os, "stat", write_before)
    ingest(lake, SIGNALS)
    assert [name for name, _ in values_of(lake)] == ["whole.jsonl"]
    assert "written to while it was read" in refusals(lake)["grows.jsonl"]
