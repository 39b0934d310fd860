"""What is damaged is put out of the way, with what stands and falls with it, and nothing else is."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from include.care import set_aside
from include.care.set_aside import apply_set_aside, plan_set_aside
from include.lake.lease import hold_lease
from include.lake.paths import Lake, LakeError
from include.landing.erasures import begin_erasure
from include.landing.ingest import RunCounts, ingest
from tests.ingested import SIGNALS, values_of
from tests.landed_files import Landing, signal
from tests.refused import commands_in, refused

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TARGET = "set_aside/20260301T120000.000000"


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

    plan = plan_set_aside(lake, ["quarantine/signals"], NOW)
    apply_set_aside(lake, plan)

    assert plan.names == ("bronze/signals", "quarantine/signals", "ingest_log/signals")
    assert commands_in(plan.text()) == ["stream device_signals", "reseed device_signals --apply"]
    assert not any(name.startswith(plan.names) for name in names_below(lake))
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    assert values_of(lake) == before


def test_a_stream_that_never_ran_goes_on_without_a_reseed(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    told = plan_set_aside(lake, ["bronze/signals"], NOW).text()
    assert commands_in(told) == ["stream device_signals"]


def test_rows_that_will_not_come_again_are_counted(lake: Lake, landed: Landing):
    for name in ("a.jsonl", "b.jsonl"):
        landed.add(name, [signal(0), "{"])
    ingest(lake, SIGNALS)
    (landed.folder / "a.jsonl").unlink()
    told = plan_set_aside(lake, ["bronze/signals"], NOW).text()
    assert re.findall(r"(\d+) file.*LOST", told) == ["1"]


def test_a_file_of_a_checkpoint_goes_with_its_checksum_and_alone(lake: Lake):
    logs = "checkpoints/user_counts/1/commits"
    write(lake, f"{logs}/7", f"{logs}/.7.crc", f"{logs}/6", f"{logs}/.6.crc")
    plan = plan_set_aside(lake, [f"{logs}/7"], NOW)
    apply_set_aside(lake, plan)
    left = {f"{logs}/6", f"{logs}/.6.crc", f"{TARGET}/{logs}/7", f"{TARGET}/{logs}/.7.crc"}
    assert {name for name in names_below(lake) if "leases" not in name} == left


def test_several_go_at_once_each_once(lake: Lake):
    write(lake, "ops/batches/a", "tables/user_counts/a")
    plan = plan_set_aside(lake, ["ops/batches", "tables/user_counts/", "ops/batches"], NOW)
    assert plan.names == ("ops/batches", "tables/user_counts")


@pytest.mark.parametrize(
    "name",
    [
        "landing/signals",
        "leases/stream-user_counts.lock",
        "bronze",
        "",
        "ops/../landing",
        "checkpoints/user_counts",
        "/etc/passwd",
    ],
)
def test_nothing_but_tables_and_parts_of_checkpoints_is_set_aside(lake: Lake, name: str):
    write(lake, "landing/signals/a.jsonl", "checkpoints/user_counts/1/metadata")
    with refused("wrong_argument"):
        plan_set_aside(lake, [name], NOW)


def test_what_is_not_there_is_not_set_aside(lake: Lake):
    with refused("nothing_there", subject="ops/batches"):
        plan_set_aside(lake, ["ops/batches"], NOW)


@pytest.mark.parametrize("lease", ["stream-user_counts", "ingest-signals"])
def test_nothing_is_moved_while_a_job_works(lake: Lake, lease: str):
    write(lake, "ops/batches/a")
    plan = plan_set_aside(lake, ["ops/batches"], NOW)
    with hold_lease(lake, lease), refused("lease_taken"):
        apply_set_aside(lake, plan)
    assert "ops/batches/a" in names_below(lake)


def test_no_table_of_a_source_goes_while_a_key_of_it_is_being_erased(lake: Lake, landed: Landing):
    """Ingestion waits for the erasure, which would find no bronze: nothing could go on."""
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    begin_erasure(lake, SIGNALS, {"device_id": "7"}, bronze_id="some-table")
    with refused("unfinished_erasure", subject="signals"):
        plan_set_aside(lake, ["bronze/signals"], NOW)


def test_a_state_that_had_come_to_something_is_made_anew(lake: Lake):
    root = "checkpoints/user_counts/1"

    def commands(name: str) -> list[str]:
        return commands_in(plan_set_aside(lake, [name], NOW).text())

    write(lake, f"{root}/metadata")
    assert commands(root) == ["stream user_counts", "reseed user_counts --apply"]
    write(lake, f"{root}/offsets/0", f"{root}/commits/0", f"{root}/state/0/0/1.changelog")
    assert commands(root) == ["reseed user_counts --apply"]
    assert commands(f"{root}/offsets") == ["stream user_counts", "reseed user_counts --apply"]


def test_rejected_rows_come_back_from_the_beginning_alone(lake: Lake):
    write(lake, "rejected/user_counts/a")
    told = plan_set_aside(lake, ["rejected/user_counts"], NOW).text()
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

    move = set_aside._move
    monkeypatch.setattr(set_aside, "_move", cut_off)
    with pytest.raises(KeyboardInterrupt):
        apply_set_aside(lake, plan_set_aside(lake, ["quarantine/signals"], NOW))
    monkeypatch.setattr(set_aside, "_move", move)
    with pytest.raises(LakeError):
        ingest(lake, SIGNALS)
    apply_set_aside(lake, plan_set_aside(lake, ["bronze/signals"], NOW + timedelta(minutes=1)))
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    assert values_of(lake) == before
