"""Ingestion again: after a death anywhere, in other cuts, and in a lake that was moved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing.bronze_commits import read_clock
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import files_waiting
from include.landing.parsed_batch import Parse, parsed_here
from include.settings import FOLDER, Source
from tests.clocked import HOUR
from tests.clocked import SIGNALS as CLOCKED
from tests.deaths import Dying, KilledError, MachineClock, die
from tests.ingested import (
    SIGNALS,
    bronze_of,
    one_file_a_commit,
    quarantine_of,
    rows_of,
)
from tests.landed_files import START, Landing, forget_finish, signal
from tests.parsers import HERE, ON_SPARK, both_parsers_at_length, parser

pytestmark = pytest.mark.slow

NOW = START + 9 * HOUR  # by the machine
CUT = one_file_a_commit(CLOCKED)
GROUPED = replace(CUT, watermark_per=FOLDER, idle_after=HOUR)
# What a run writes of two batches, and at last a clock row.
A_BATCH = ("append_accepted", "append_refused", "seal_tables", "finish", "next_batch")
WRITES = ("next_batch", *A_BATCH, *A_BATCH, "write_clock_row", "seal_tables")
AT_LENGTH = [pytest.mark.spark, pytest.mark.full]


def tables_of(lake: Lake, source: Source) -> dict[str, Any]:
    """All that an ingestion of signals has made."""
    paths = lake.bronze("signals"), lake.quarantine("signals"), lake.ingested_files("signals")
    groups = read_ops(lake, "watermark_groups").drop_columns(["measured_at"]).to_pylist()
    return {path.removeprefix(lake.root): rows_of(path) for path in paths} | {
        "clock": read_clock(lake, source),
        "groups": sorted(groups, key=str),
        "waiting": files_waiting(lake, "signals"),
    }


def land_two_batches(lake: Lake, source: Source, patch: pytest.MonkeyPatch) -> None:
    """Of two groups that are known, which hold the clock row back."""
    machine, landed = MachineClock(patch, START + HOUR), Landing(lake)
    landed.add("slow/0.jsonl", [signal(0), "["])
    landed.add("fast/0.jsonl", [signal(1800)])
    ingest(lake, source, interval_end=START)
    machine.time = NOW
    landed.add("fast/1.jsonl", [signal(7201), "{", signal(7200)])
    landed.add("slow/1.jsonl", [signal(60), signal(60), "{", signal(-9)])


def run(lake: Lake, source: Source, parse: Parse) -> RunCounts:
    return ingest(lake, source, interval_end=NOW, parse=parse)


@pytest.fixture(scope="module", params=[CUT, GROUPED], ids=["one clock", "groups"])
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


@pytest.fixture(scope="module")
def without_death(source: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tables of a lake in which no run ever died, at the same time of the machine."""
    twin = Lake(str(tmp_path_factory.mktemp("twin")))
    with pytest.MonkeyPatch.context() as patch:
        land_two_batches(twin, source, patch)
        counted = Dying(patch, number=len(WRITES))
        assert run(twin, source, parsed_here).batches == 2
    assert tuple(counted.written) == WRITES
    assert any(row["is_clock"] for row in bronze_of(twin)) is (source is CUT)
    return tables_of(twin, source)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (HERE, HERE),
        pytest.param(HERE, ON_SPARK, marks=AT_LENGTH),
        pytest.param(ON_SPARK, HERE, marks=AT_LENGTH),
        pytest.param(ON_SPARK, ON_SPARK, marks=AT_LENGTH),
    ],
)
@pytest.mark.parametrize("died", [f"{n}-{name}" for n, name in enumerate(WRITES)])
def test_a_death_before_any_write_of_a_run_leaves_no_trace_behind_the_next_run(
    request: pytest.FixtureRequest,
    lake: Lake,
    source: Source,
    without_death: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    died: str,
):
    land_two_batches(lake, source, monkeypatch)
    with monkeypatch.context() as patch:
        Dying(patch, int(died.split("-")[0]))
        with pytest.raises(KilledError):
            run(lake, source, parser(request, first))
    run(lake, source, parser(request, second))
    assert tables_of(lake, source) == without_death


@both_parsers_at_length
def test_a_repeated_batch_keeps_its_time(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch, parse: Parse
):
    """A row that was refused for being in the future stays refused, or it would be lost."""
    machine = MachineClock(monkeypatch, START)
    hours = [signal(second) for second in (0, 7200)]
    landed.add("a.jsonl", hours)
    with monkeypatch.context() as patch:
        patch.setattr(ingestion, "finish", die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS, parse=parse)
    before = bronze_of(lake), quarantine_of(lake)
    assert [row["reason_code"] for row in before[1]] == ["future_time"]
    machine.time = START + 3 * HOUR
    landed.add("b.jsonl", hours)
    assert ingest(lake, SIGNALS, parse=parse) == RunCounts(2, 2, 4, 3, 1)
    assert [row for row in bronze_of(lake) if row["source_file"] == "a.jsonl"] == before[0]
    assert quarantine_of(lake) == before[1]


def test_a_repeated_batch_takes_no_file_that_came_since(lake: Lake, landed: Landing):
    landed.add("b.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    forget_finish(lake)
    landed.add("a.jsonl", [signal(1)])
    assert files_waiting(lake, "signals") == 2
    assert ingest(lake, SIGNALS) == RunCounts(2, 2, 2, 2, 0)
    assert len(bronze_of(lake)) == 2


def test_a_moved_lake_goes_on_where_it_was(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, SIGNALS)
    landed.add("b.jsonl", [signal(1)])
    moved = Lake(str(Path(lake.root).rename(Path(lake.root).with_name("moved"))))
    assert files_waiting(moved, "signals") == 1
    assert ingest(moved, SIGNALS) == RunCounts(1, 1, 1, 1, 0)
    assert [row["source_file"] for row in bronze_of(moved)].count("a.jsonl") == 1


@both_parsers_at_length
def test_a_lake_may_have_any_name(tmp_path: Path, parse: Parse):
    lake = Lake(str(tmp_path / "a {b,c} é"))
    Landing(lake).add("x.jsonl", [signal(0)])
    assert files_waiting(lake, "signals") == 1
    assert ingest(lake, SIGNALS, parse=parse).rows_bronze == 1
    assert files_waiting(lake, "signals") == 0
