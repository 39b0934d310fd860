"""`./stateful ingest SOURCE --from-scratch`: what is damaged is put out of the way, and all is ingested anew."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from include import job
from include.cli.__main__ import main
from include.ingest.amendments import begin_erasure
from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.ingest.source_connector import move_source_aside, plan_from_scratch
from include.lake import delta_log
from include.lake.errors import LakeError
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from tests.ingested import SIGNALS, values_of
from tests.landed_files import Landing, signal
from tests.refused import commands_in, refused

TABLES = ("bronze/signals", "quarantine/signals", "ingest_log/signals")


def names_below(lake: Lake) -> set[str]:
    files = (path for path in Path(lake.root).rglob("*") if path.is_file())
    return {str(path.relative_to(lake.root)) for path in files}


def write(lake: Lake, *names: str) -> None:
    for name in names:
        path = Path(lake.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_a_source_is_ingested_anew_from_landing_by_one_command(lake: Lake, landed: Landing, capfd):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(lake, SIGNALS)
    before, files = values_of(lake), names_below(lake)
    command = ["ingest", "signals", "--from-scratch", "--lake", lake.root]
    assert main(command) == 0
    told = capfd.readouterr().out
    assert all(name in told for name in TABLES)
    assert names_below(lake) == files

    assert main([*command, "--apply"]) == 0
    names = names_below(lake)
    for table in TABLES:
        logs = [name for name in names if f"{table}/_delta_log/0" in name]
        assert {name.startswith("set_aside/") for name in logs} == {False, True}
    assert values_of(lake) == before
    assert ingest(lake, SIGNALS) == Counts()


@pytest.mark.parametrize("has_run", [False, True])
def test_streams_that_have_run_are_to_be_made_anew(lake: Lake, landed: Landing, has_run: bool):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    if has_run:
        write(lake, "checkpoints/device_signals/1/metadata")
    named = commands_in(plan_from_scratch(lake, SIGNALS))
    assert named == ["rebuild device_signals --apply"] * has_run


def test_rows_that_will_not_come_again_are_counted(lake: Lake, landed: Landing):
    for name in ("a.jsonl", "b.jsonl"):
        landed.add(name, [signal(0), "{"])
    ingest(lake, SIGNALS)
    (landed.folder / "a.jsonl").unlink()
    told = plan_from_scratch(lake, SIGNALS)
    assert re.findall(r"(\d+) file.*LOST", told) == ["1"]


@pytest.mark.parametrize("lease", ["stream-device_signals", "ingest-signals"])
def test_nothing_is_moved_while_a_job_works(
    lake: Lake, landed: Landing, lease: str, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    monkeypatch.setattr(job, "PATIENCE", timedelta(0))
    before = values_of(lake)
    with hold_lease(lake, lease), refused("lease_taken"):
        move_source_aside(lake, SIGNALS)
    assert values_of(lake) == before


def test_no_table_of_a_source_goes_while_a_key_of_it_is_being_erased(lake: Lake, landed: Landing):
    """Ingestion waits for the erasure, which would find no bronze: nothing could go on."""
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    begin_erasure(lake, SIGNALS, {"device_id": "7"})
    for step in (plan_from_scratch, move_source_aside):
        with refused("unfinished_erasure", subject="signals"):
            step(lake, SIGNALS)


def test_a_move_that_was_cut_off_is_finished_by_its_repeat(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(lake, SIGNALS)
    before = values_of(lake)
    moves = []

    def cut_off(lake: Lake, name: str, target: str) -> None:
        if moves:
            raise KeyboardInterrupt
        moves.append(name)
        move(lake, name, target)

    move = delta_log._move
    monkeypatch.setattr(delta_log, "_move", cut_off)
    with pytest.raises(KeyboardInterrupt):
        move_source_aside(lake, SIGNALS)
    monkeypatch.setattr(delta_log, "_move", move)
    with pytest.raises(LakeError):
        ingest(lake, SIGNALS)
    move_source_aside(lake, SIGNALS)
    assert ingest(lake, SIGNALS) == Counts(1, 1, 1, 1)
    assert values_of(lake) == before
