"""What is damaged is put out of the way, with what stands and falls with it, and nothing else is."""

import re
from pathlib import Path

import pytest

from include.care.set_aside import apply_set_aside, plan_set_aside
from include.lake import aside
from include.lake.lease import hold_lease
from include.lake.paths import Lake, LakeError
from include.landing.amendments import begin_erasure
from include.landing.ingest import RunCounts, ingest
from tests.ingested import SIGNALS, values_of
from tests.landed_files import Landing, signal
from tests.refused import commands_in, refused


@pytest.fixture
def landed(lake: Lake) -> Landing:
    return Landing(lake)


def names_below(lake: Lake) -> set[str]:
    files = (path for path in Path(lake.root).rglob("*") if path.is_file())
    return {str(path.relative_to(lake.root)) for path in files}


def write(lake: Lake, *names: str) -> None:
    for name in names:
        path = Path(lake.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_a_source_is_ingested_anew_from_landing(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0), "{"])
    ingest(lake, SIGNALS)
    write(lake, "checkpoints/device_signals/1/metadata")
    before = values_of(lake)

    plan = plan_set_aside(lake, "quarantine/signals")
    apply_set_aside(lake, plan)

    assert plan.names == ("bronze/signals", "quarantine/signals", "ingest_log/signals")
    assert commands_in(plan.text()) == ["stream device_signals", "reseed device_signals --apply"]
    assert not any(name.startswith(plan.names) for name in names_below(lake))
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    assert values_of(lake) == before


def test_rows_that_will_not_come_again_are_counted(lake: Lake, landed: Landing):
    for name in ("a.jsonl", "b.jsonl"):
        landed.add(name, [signal(0), "{"])
    ingest(lake, SIGNALS)
    (landed.folder / "a.jsonl").unlink()
    told = plan_set_aside(lake, "bronze/signals").text()
    assert re.findall(r"(\d+) file.*LOST", told) == ["1"]


@pytest.mark.parametrize(
    "name",
    [
        "landing/signals",
        "leases/stream-user_counts.lock",
        "bronze",
        "",
        "ops/../landing",
        "checkpoints/user_counts/1",
        "ops/batches",
        "/etc/passwd",
    ],
)
def test_nothing_but_tables_of_sources_and_streams_is_set_aside(lake: Lake, name: str):
    write(lake, "landing/signals/a.jsonl", "checkpoints/user_counts/1/metadata")
    with refused("wrong_argument"):
        plan_set_aside(lake, name)


@pytest.mark.parametrize("lease", ["stream-user_counts", "ingest-signals"])
def test_nothing_is_moved_while_a_job_works(lake: Lake, lease: str):
    write(lake, "tables/user_counts/a")
    plan = plan_set_aside(lake, "tables/user_counts")
    with hold_lease(lake, lease), refused("lease_taken"):
        apply_set_aside(lake, plan)
    assert "tables/user_counts/a" in names_below(lake)


def test_no_table_of_a_source_goes_while_a_key_of_it_is_being_erased(lake: Lake, landed: Landing):
    """Ingestion waits for the erasure, which would find no bronze: nothing could go on."""
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    begin_erasure(lake, SIGNALS, {"device_id": "7"}, bronze_id="some-table")
    with refused("unfinished_erasure", subject="signals"):
        plan_set_aside(lake, "bronze/signals")


def test_dead_letters_come_back_from_the_beginning_alone(lake: Lake):
    write(lake, "dead_letters/user_counts/a")
    told = plan_set_aside(lake, "dead_letters/user_counts").text()
    assert commands_in(told) == ["reseed user_counts --recompute --apply"]


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

    move = aside._move
    monkeypatch.setattr(aside, "_move", cut_off)
    with pytest.raises(KeyboardInterrupt):
        apply_set_aside(lake, plan_set_aside(lake, "quarantine/signals"))
    monkeypatch.setattr(aside, "_move", move)
    with pytest.raises(LakeError):
        ingest(lake, SIGNALS)
    apply_set_aside(lake, plan_set_aside(lake, "bronze/signals"))
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    assert values_of(lake) == before
