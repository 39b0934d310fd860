"""A watermark that moves further than time has passed is told of, with the file that moved it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from include.fold.admission import MICROSECOND
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.clock import Clock
from include.landing.ingest import SLACK, Jump, find_jump, ingest, jump_findings
from include.landing.ingest_position import Batch
from include.landing.parse_files import ACCEPTED, FILE, OUTCOME, REFUSED, arrow_schema
from include.landing.parsed_batch import Parsed, ParsedHere
from spark_jobs.tables.landing import ParsedOnSpark, ddl
from tests.clocked import GRACE, SIGNALS, clock_of
from tests.ingested import SIGNALS as WITHOUT_CLOCK
from tests.landed_files import START, Landing, signal
from tests.parsers import HERE, ON_SPARK

HOUR_US = timedelta(hours=1) // MICROSECOND
MOST_US = (SIGNALS.max_future + SLACK) // MICROSECOND


def parsed(request: pytest.FixtureRequest, lake: Lake, by: str, rows: pa.Table) -> Parsed:
    batch = Batch("", 0, (), 0)
    if by == HERE:
        return ParsedHere(lake, SIGNALS, batch, rows)
    frame = request.getfixturevalue("spark").createDataFrame(rows.to_pylist(), ddl(OUTCOME))
    return ParsedOnSpark(lake, SIGNALS, batch, frame)


@pytest.mark.parametrize(
    "by", [HERE, pytest.param(ON_SPARK, marks=[pytest.mark.spark, pytest.mark.full])]
)
def test_the_newest_file_is_told_with_the_next_one_s_time(
    request: pytest.FixtureRequest, lake: Lake, by: str
):
    def newest(**files: int) -> tuple[str, int | None]:
        rows = [(ACCEPTED, name, time) for name, time in files.items()]
        rows += [(ACCEPTED, "a", -5), (REFUSED, "z", None), (FILE, "z", None)]
        names = ("kind", "source_file", "event_time_us")
        empty = dict.fromkeys(OUTCOME)
        outcomes = [empty | dict(zip(names, row, strict=True)) for row in rows]
        table = pa.Table.from_pylist(outcomes, arrow_schema(OUTCOME))
        return parsed(request, lake, by, table).newest_file()

    assert newest(a=9) == ("a", None)
    assert newest(a=8, b=9, c=-9) == ("b", 8)
    assert newest(b=9, a=9) == ("a", 9)


def jump(newest: dict[str, int], passed_us: int = 0) -> Jump | None:
    """Of a commit with these files, each with its newest time after the watermark before."""
    (_, file), *others = sorted((-time, name) for name, time in newest.items())
    after = Clock(max(newest.values()), passed_us)
    second = -others[0][0] if others else None
    return find_jump(lambda: (file, second), SIGNALS, Clock(0, 0), after)


def test_a_jump_is_what_goes_beyond_time_and_the_other_files():
    assert jump({"a": MOST_US}) is None
    assert jump({"a": MOST_US + 1}) == (MOST_US + 1, 0, MOST_US + 1, "a")
    assert jump({"a": MOST_US + 1}, passed_us=1) is None
    assert jump({"a": 9 * HOUR_US, "b": 8 * HOUR_US}) is None
    assert jump({"a": 9 * HOUR_US, "b": HOUR_US}) == (8 * HOUR_US, 0, 9 * HOUR_US, "a")
    assert jump({"b": -9 * HOUR_US, "a": 9 * HOUR_US}) == (9 * HOUR_US, 0, 9 * HOUR_US, "a")


def test_the_furthest_jump_of_a_run_is_its_one_finding():
    jumps = [Jump(HOUR_US, 1, 5, "a"), Jump(3 * HOUR_US, 1_000_000, 0, "b")]
    assert jump_findings(SIGNALS, []) == []
    (found,) = jump_findings(SIGNALS, jumps)
    assert (found.finding, found.severity, found.count) == ("watermark_jumped", "warning", 2)
    assert "b moved the watermark of bronze/signals 3:00:00 beyond all other rows" in found.detail
    assert "to 1970-01-01T00:00:00.000+00:00, 0:00:01 after the commit before" in found.detail


def test_a_run_tells_of_the_file_that_moved_the_watermark(lake: Lake):
    landed = Landing(lake)
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, WITHOUT_CLOCK)  # the first rows move it from nowhere
    landed.add("b.jsonl", [signal(60)])
    landed.add("wrong.jsonl", [signal(61), signal(40 * 24 * 3600)])
    ingest(lake, WITHOUT_CLOCK)
    (found,) = read_ops(lake, "findings").to_pylist()
    assert (found["finding"], found["subject"]) == ("watermark_jumped", "signals")
    assert "wrong.jsonl" in found["detail"]


def test_a_wrong_clock_moves_the_watermark_by_one_step(lake: Lake):
    source = replace(SIGNALS, max_clock_step=timedelta(days=2))
    Landing(lake).add("a.jsonl", [signal(0)])
    ingest(lake, source, interval_end=START)
    far: datetime = START + timedelta(days=30)  # it is long past that now
    for run in (1, 2):
        ingest(lake, source, interval_end=far)
        reached = clock_of(lake).watermark_us
        assert reached == (START + run * source.max_clock_step).timestamp() * 1_000_000
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found] == ["clock_row_bounded"] * 2
    assert source.max_clock_step > GRACE
