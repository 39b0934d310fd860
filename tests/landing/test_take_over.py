"""A lake of release 0.5 is taken over once: what its checkpoint knew, the new position knows.

Its ingestion was the same but for where its position lay; so the tables are made by this one, and
the position is put into a checkpoint of Spark.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from include.lake.paths import Lake, LakeError
from include.landing import ingest as ingestion
from include.landing.bronze_tables import create_tables
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import ensure_position, files_waiting, read_position
from include.landing.parsed_batch import Parse, ParsedHere
from tests.clocked import HOUR, clock_of
from tests.deaths import KilledError, MachineClock, die
from tests.ingest_checkpoint import QUERY_ID, IngestCheckpoint, as_of_0_5
from tests.ingested import (
    SIGNALS,
    bronze_of,
    one_file_a_commit,
    other_findings,
    quarantine_of,
)
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers_at_length

pytestmark = pytest.mark.slow

NOTHING = RunCounts()
CHECKPOINT = "checkpoints/ingest/signals"
# What a run of 0.5 was about to do when it died: none, one or both of its commits are made.
DEATHS = [(ParsedHere, "append_accepted"), (ParsedHere, "append_refused"), (ingestion, "finish")]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    return MachineClock(monkeypatch, START + 9 * HOUR)


@pytest.fixture
def landed(lake: Lake) -> Landing:
    """With two files that were ingested, a commit each."""
    landed = Landing(lake)
    landed.add("a b%20ü.jsonl", [signal(0), "{"])
    landed.add("b.jsonl", [signal(1), "{"])
    ingest(lake, one_file_a_commit())
    return landed


def tables_of(lake: Lake) -> tuple[Any, ...]:
    return bronze_of(lake), quarantine_of(lake), clock_of(lake), files_waiting(lake, "signals")


def findings(lake: Lake) -> list[tuple[str, int]]:
    return [(row["finding"], row["count"]) for row in other_findings(lake)]


def test_what_was_committed_is_not_taken_again_and_numbers_go_on(
    lake: Lake, landed: Landing, machine: MachineClock
):
    checkpoint = as_of_0_5(lake)
    assert files_waiting(lake, "signals") == 0
    before = tables_of(lake)
    assert ingest(lake, SIGNALS) == NOTHING
    assert tables_of(lake) == before
    landed.add("c.jsonl", [signal(2)])
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 1, 1, 0)
    position = read_position(lake, "signals")
    assert position is not None
    assert (position.id, position.newest) == (checkpoint.query_id, 2)
    assert position.taken == {"a b%20ü.jsonl", "b.jsonl", "c.jsonl"}
    assert findings(lake) == []


@both_parsers_at_length
@pytest.mark.parametrize(
    ("place", "step"), DEATHS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_a_batch_that_was_begun_is_repeated_as_the_same(
    lake: Lake,
    landed: Landing,
    machine: MachineClock,
    monkeypatch: pytest.MonkeyPatch,
    parse: Parse,
    place: Any,
    step: str,
):
    landed.add("d.jsonl", [signal(20), "[", signal(7200)])  # an hour later the last one is allowed
    landed.add("c.jsonl", [signal(3), "["])
    machine.time = START + HOUR / 2
    with monkeypatch.context() as patch:
        patch.setattr(place, step, die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)
    twin = Lake(shutil.copytree(lake.root, f"{lake.root}-twin"))
    as_of_0_5(lake)
    assert files_waiting(lake, "signals") == 2
    machine.time = START + 9 * HOUR
    for each in (lake, twin):
        Landing(each).add("e.jsonl", [signal(4)])
        assert ingest(each, SIGNALS, parse=parse) == RunCounts(2, 3, 6, 3, 3)
    assert tables_of(lake) == tables_of(twin)
    assert read_position(lake, "signals") == read_position(twin, "signals")


@pytest.mark.parametrize("is_done", [False, True])
def test_a_death_around_the_take_over_is_made_good_by_the_next_run(
    lake: Lake,
    landed: Landing,
    machine: MachineClock,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
):
    as_of_0_5(lake)
    before = tables_of(lake)

    def take_over_and_die(*given: Any) -> None:
        if is_done:
            ensure_position(*given)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(ingestion, "ensure_position", take_over_and_die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)
    assert lake.is_delta_table(lake.ingested_files("signals")) == is_done
    assert tables_of(lake) == before
    assert ingest(lake, SIGNALS) == NOTHING
    assert tables_of(lake) == before


def damage(checkpoint: Path) -> None:
    """No part of it can be read any more."""
    for file in checkpoint.rglob("*"):
        if file.is_file():
            file.write_text("?")


@pytest.mark.parametrize("becomes", [lambda checkpoint: None, shutil.rmtree, damage])
def test_the_old_checkpoint_is_not_looked_at_again(
    lake: Lake, landed: Landing, becomes: Callable[[Path], None]
):
    as_of_0_5(lake)
    ingest(lake, SIGNALS)
    becomes(Path(lake.ingest_checkpoint("signals")))
    assert files_waiting(lake, "signals") == 0
    landed.add("c.jsonl", [signal(2)])
    assert files_waiting(lake, "signals") == 1
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 1, 1, 0)
    assert ingest(lake, SIGNALS) == NOTHING


def test_a_position_that_is_lost_after_the_take_over_is_not_taken_over_again(
    lake: Lake, landed: Landing
):
    as_of_0_5(lake)
    ingest(lake, SIGNALS)
    landed.add("c.jsonl", [signal(2)])
    ingest(lake, SIGNALS)
    shutil.rmtree(lake.ingested_files("signals"))
    with pytest.raises(LakeError, match="ingested_files/signals is missing, but it had version"):
        ingest(lake, SIGNALS)
    shutil.rmtree(lake.ops("tables"))  # nor when nobody knows that there was one
    with pytest.raises(LakeError, match=rf"{CHECKPOINT} ends at batch 1, but .* has batch 2"):
        ingest(lake, SIGNALS)


def test_tables_are_as_little_without_the_checkpoint_as_it_is_without_them(
    lake: Lake, landed: Landing
):
    as_of_0_5(lake)
    checkpoint = Path(lake.ingest_checkpoint("signals"))
    kept = checkpoint.rename(checkpoint.with_name("kept"))
    with pytest.raises(LakeError, match=r"has rows, but .*ingested_files/signals is missing"):
        ingest(lake, SIGNALS)
    kept.rename(checkpoint)
    Path(lake.bronze("signals")).rename(checkpoint.with_name("bronze"))
    with pytest.raises(LakeError, match=rf"bronze/signals is missing, but .*{CHECKPOINT} is there"):
        ingest(lake, SIGNALS)


def test_an_old_copy_of_the_checkpoint_is_refused(lake: Lake, landed: Landing):
    checkpoint = as_of_0_5(lake)
    for part in ("offsets/1", "commits/1", "sources/0/1"):
        (checkpoint.folder / part).unlink()
    with pytest.raises(LakeError, match=rf"{CHECKPOINT} ends at batch 0, but .* an old copy"):
        ingest(lake, SIGNALS)


def test_a_lake_that_was_moved_under_0_5_is_refused_until_it_is_moved_back(
    lake: Lake, landed: Landing
):
    as_of_0_5(lake)
    moved = Path(lake.root).rename(Path(lake.root).with_name("moved"))
    with pytest.raises(LakeError, match="Move it back"):
        ingest(Lake(str(moved)), SIGNALS)
    moved.rename(lake.root)
    assert ingest(lake, SIGNALS) == NOTHING


def test_a_checkpoint_that_knows_no_file_is_taken_over_with_its_name(lake: Lake):
    create_tables(lake, SIGNALS)
    IngestCheckpoint(lake)
    Landing(lake).add("a.jsonl", [signal(0)])
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 1, 1, 0)
    position = read_position(lake, "signals")
    assert position is not None
    assert (position.id, position.newest) == (QUERY_ID, 0)
