"""Findings of an ingest run: much was refused, or the watermark moved further than time has passed."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from include.fold.admission import MICROSECOND
from include.ingest.ingest import SLACK, ingest, jump_findings
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import Parse
from include.ingest.watermark import SourceWatermark
from include.lake.ops import read_ops
from include.lake.paths import Lake
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS as NO_HEARTBEAT
from tests.ingested import quarantine_of
from tests.landed_files import START, Landing, signal
from tests.parsers import both_parsers_at_length
from tests.watermarks import HEARTBEAT_DELAY, SIGNALS, watermark_of

WELL = [signal(number) for number in range(8)]


def found_in(lake: Lake) -> list[dict[str, Any]]:
    return read_ops(lake, "findings", {"finding": "rows_quarantined"}).to_pylist()


def test_who_refuses_much_is_told_why_and_where(lake: Lake, landed: Landing):
    landed.add("b.jsonl", [*WELL[:4], "{", "{}"])
    landed.add("a.jsonl", [*WELL[4:], "["])
    ingest(lake, NO_HEARTBEAT)
    (told,) = found_in(lake)
    assert (told["severity"], told["count"], told["limit"]) == ("warning", 3, 0.01)
    assert told["figure"] == len(quarantine_of(lake)) / 11


@pytest.mark.parametrize(
    ("lines", "share", "findings"),
    [("{[", 0.2, 0), ("{[", 0.19, 1), ("{[", 0, 1), ("{[", 1, 0), ("", 1, 1)],
)
def test_it_is_told_above_the_share_that_the_source_says_or_of_a_whole_file(
    lake: Lake, landed: Landing, lines: str, share: float, findings: int
):
    landed.add("a.jsonl", [*WELL, *lines])
    if not lines:
        landed.add("b.parquet", "no Parquet")
    ingest(lake, replace(NO_HEARTBEAT, max_quarantined=share))
    assert len(found_in(lake)) == findings


def test_who_dies_before_the_rows_are_taken_has_told_of_them(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", ["{", *WELL])
    with monkeypatch.context() as patch:
        patch.setattr(Ingestion, "commit", die)
        with pytest.raises(KilledError):
            ingest(lake, NO_HEARTBEAT)
    assert quarantine_of(lake) == []
    assert [told["count"] for told in found_in(lake)] == [1]


# The watermark

HOUR_US = timedelta(hours=1) // MICROSECOND
MOST_US = (SIGNALS.max_future + SLACK) // MICROSECOND


def is_jump(newest: dict[str, int], passed_us: int = 0) -> bool:
    """Of a commit with these files, each with its newest time after the watermark before."""
    after = SourceWatermark(max(newest.values()), passed_us)
    return bool(jump_findings(SIGNALS, newest, SourceWatermark(0, 0), after))


def test_a_jump_is_what_goes_beyond_time_and_the_other_files():
    assert not is_jump({"a": MOST_US})
    assert is_jump({"a": MOST_US + 1})
    assert not is_jump({"a": MOST_US + 1}, passed_us=1)
    assert not is_jump({"a": 9 * HOUR_US, "b": 8 * HOUR_US})
    assert is_jump({"a": 9 * HOUR_US, "b": HOUR_US})
    assert is_jump({"b": -9 * HOUR_US, "a": 9 * HOUR_US})


@both_parsers_at_length
def test_a_run_tells_of_the_file_that_moved_the_watermark(lake: Lake, parse: Parse):
    landed = Landing(lake)
    landed.add("a.jsonl", [signal(0)])
    ingest(lake, NO_HEARTBEAT)  # the first rows move it from nowhere
    landed.add("b.jsonl", [signal(60), "{"])
    landed.add("wrong.jsonl", [signal(61), signal(40 * 24 * 3600)])
    landed.add("z.txt", "")
    ingest(lake, NO_HEARTBEAT, parse=parse)
    (found,) = read_ops(lake, "findings", {"finding": "watermark_jumped"}).to_pylist()
    assert found["subject"] == "signals"
    assert "wrong.jsonl" in found["detail"]


def test_a_wrong_clock_moves_the_watermark_by_one_step(lake: Lake):
    source = replace(SIGNALS, max_clock_step=timedelta(days=2))
    Landing(lake).add("a.jsonl", [signal(0)])
    ingest(lake, source, interval_end=START)
    far: datetime = START + timedelta(days=30)  # it is long past that now
    for run in (1, 2):
        ingest(lake, source, interval_end=far)
        reached = watermark_of(lake).watermark_us
        assert reached == (START + run * source.max_clock_step).timestamp() * 1_000_000
    found = read_ops(lake, "findings").to_pylist()
    assert [row["finding"] for row in found] == ["heartbeat_bounded"] * 2
    assert source.max_clock_step > HEARTBEAT_DELAY
