"""The overview against SQL over the files of `ops`; empty, damaged and foreign lakes."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from include import registry
from include.fold.admission import micros_of
from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.observe import stream_line
from include.observe.stream_line import days_of, read_overview
from include.stream.record import BEGINNING_US
from include.stream.stream_status import Span, TableStatus
from tests.page.history import NOW, lived, streams_like, write_history
from tests.stream.entries import record

pytestmark = pytest.mark.slow

STREAMS = streams_like(4)
RUNS = 40


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    write_history(lake, STREAMS, RUNS)
    return lake


def sql(lake: Lake, table: str, query: str) -> dict[str, tuple[object, ...]]:
    """`query` over a table that only ever was appended to: first column -> the others."""
    files = f"read_parquet('{lake.ops(table)}/*.parquet')"
    rows = duckdb.sql(f"SET TimeZone='UTC'; {query.replace('ROWS', files)}").fetchall()
    return {row[0]: row[1:] for row in rows}


def test_state_and_keys_are_those_of_sql(filled):
    bytes_of = sql(
        filled,
        "figures",
        """SELECT subject, sum(value) FROM ROWS AS s WHERE part LIKE 'state%' AND "at" =
        (SELECT max("at") FROM ROWS AS n WHERE n.subject = s.subject) GROUP BY subject""",
    )
    lines = read_overview(filled, STREAMS, NOW).lines
    assert {line.stream: (line.state_bytes,) for line in lines} == bytes_of
    assert [line.state_keys for line in lines] == [5_000 + n for n in range(len(STREAMS))]


def test_findings_are_open_until_a_run_begins(filled):
    expected = sql(
        filled,
        "findings",
        f"""SELECT subject, count(DISTINCT finding) FROM ROWS
        WHERE found_at >= TIMESTAMPTZ '{NOW.replace(minute=1)}' GROUP BY subject""",
    )
    for line in read_overview(filled, STREAMS, NOW).lines:
        assert line.findings["warning"] == expected.get(line.stream, (0,))[0]
        assert line.findings["error"] == 0  # two days ago, and runs since


def test_a_run_that_failed_and_was_mended_by_a_rebuild_is_not_the_state_of_now(lake):
    write_history(lake, STREAMS[:1], 3)
    name = STREAMS[0].name
    for minutes, job, outcome in ((3, "run_stream", "failed"), (1, "rebuild_stream", "succeeded")):
        at = NOW - timedelta(minutes=minutes)
        row = {"run_id": job, "job": job, "subject": name, "started_at": at, "ended_at": at}
        append_ops(lake, "runs", [row | {"outcome": outcome, "error": "it broke"}])
        if job == "run_stream":
            found = {"subject": name, "finding": "data_check_failed", "severity": "error"}
            append_ops(lake, "findings", [found | {"run_id": job, "found_at": at}])
            assert read_overview(lake, STREAMS[:1], NOW).lines[0].findings["error"] == 1
    (line,) = read_overview(lake, STREAMS[:1], NOW).lines
    assert (line.run_failed, line.run_end, line.findings["error"]) == (False, at, 0)


def test_lag_is_held_against_the_schedule(filled):
    soon, later = (read_overview(filled, STREAMS, NOW + n * timedelta(hours=1)) for n in (0, 3))
    assert [line.until_lag for line in soon.lines] == [NOW - line.until for line in soon.lines]
    assert {line.is_behind for line in soon.lines} == {False}
    assert {line.is_behind for line in later.lines} == {True}
    assert soon.lines[0].next_run == NOW.replace(hour=13, minute=0)


def test_a_weekend_without_a_tick_is_no_lag(lake):
    stream = replace(STREAMS[0], schedule="0 9 * * 1-5")
    friday, monday, tuesday = (datetime(2026, 11, day, 8, 59, tzinfo=UTC) for day in (20, 23, 24))
    promised = [
        read_overview(lake, [stream], now).lines[0].until_lag_promised - stream.watermark_delay
        for now in (friday, monday, monday + timedelta(minutes=1), tuesday)
    ]
    assert promised == [timedelta(days=days) for days in (2, 4, 4, 4)]
    assert read_overview(lake, [stream], monday).lines[0].next_run == monday.replace(
        hour=9, minute=0
    )


def test_a_rewound_table_is_complete_until_where_its_record_ends(lake):
    write_history(lake, STREAMS[:1], 3)
    earlier = NOW - timedelta(days=3)
    record(lake, lived(micros_of(earlier)), STREAMS[0].name)
    (line,) = read_overview(lake, STREAMS[:1], NOW).lines
    assert line.until == earlier
    assert Counter(day.status for day in line.days) == {"right": 26, "incomplete": 4}


def test_a_stream_is_below_those_that_it_reads_and_waits_for_them(lake, monkeypatch):
    of = {"stream_000": ("stream_002",), "stream_001": ("stream_000",)}
    for module in (registry, stream_line):
        monkeypatch.setattr(module, "parents_of", lambda name: of.get(name, ()))
    lines = read_overview(lake, STREAMS, NOW).lines
    assert [(line.stream[-1], line.depth) for line in lines] == [
        ("2", 0),
        ("0", 1),
        ("1", 2),
        ("3", 0),
    ]
    assert [line.reads for line in lines[:2]] == [(), ("stream_002",)]


@pytest.mark.parametrize("reason", [None, "upstream", "late rows"])
def test_a_line_says_from_when_on_a_table_is_wrong_or_waits(lake, reason):
    write_history(lake, STREAMS[:1], 3)
    (line,) = read_overview(lake, STREAMS[:1], NOW).lines
    us, said = micros_of(MIDNIGHT), {None: "right", "upstream": "waits from 2026-11-20 00:00"}
    spans = (Span(BEGINNING_US, us, None), Span(us, us + 1, reason))
    status = replace(line.status, table_status=TableStatus(us + 1, spans, None))
    expected = said.get(reason, "wrong from 2026-11-20 00:00")
    assert replace(line, status=status).verdict == expected
    (day,) = days_of(status.table_status, MIDNIGHT, 1)
    assert day.status == {None: "incomplete", "upstream": "waits", "late rows": "late"}[reason]


MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)


def test_a_day_is_what_the_worst_of_its_spans_is():
    us = micros_of(MIDNIGHT)
    hour = 3_600_000_000
    spans = (
        Span(BEGINNING_US, us, None),
        Span(us, us + hour, "late rows"),
        Span(us + hour, us + 2 * hour, "other code"),
        Span(us + 2 * hour, us + 30 * hour, None),
    )
    days = days_of(TableStatus(us + 30 * hour, spans, None), MIDNIGHT + timedelta(days=2), 4)
    assert [day.status for day in days] == ["right", "code", "incomplete", "incomplete"]


def test_what_is_promised_is_what_the_entry_says(lake):
    (stream,) = streams_like(1)
    promise = replace(stream, fresh_within=timedelta(hours=7))
    (said,) = read_overview(lake, [promise], NOW).lines
    (ticks,) = read_overview(lake, [stream], NOW).lines
    assert (said.until_lag_promised, ticks.until_lag_promised) == (
        timedelta(hours=7),
        timedelta(hours=2, minutes=10),
    )
