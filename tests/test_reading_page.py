"""What docs/reading.md shows is what it says, of the shipped streams' tables."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from include.fold.product_table import ensure_product
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import PROJECT
from include.stream_definition import load_definition
from tests.simulator.local_engine import LocalProduct

PAGE = (PROJECT / "docs" / "reading.md").read_text()
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def emitted(stream: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a stream, with the instant at which each was emitted, as an engine hands them over."""
    at_us = [int(row.pop("at").timestamp() * 1_000_000) for row in rows]
    table = pa.Table.from_pylist(rows).append_column("emitted_at_us", pa.array(at_us, pa.int64()))
    if load_definition(stream_named(stream)).fold.output_mode == "update":
        table = table.append_column("removed", pa.array([False] * len(rows)))
    return table


def write(lake: Lake, stream: str, *batches: list[dict[str, Any]]) -> None:
    definition = load_definition(stream_named(stream))
    ensure_product(lake.table(stream), definition)
    table = LocalProduct(lake, stream, definition)
    for number, rows in enumerate(batches):
        table.write_once(emitted(stream, rows), f"{stream}/1", number, {})


def session(user: str, day: int, hours: int, events: int) -> dict[str, Any]:
    start = AT + day * DAY
    end = start + timedelta(hours=hours)
    times = {"session_start": start, "session_end": end, "at": end}
    return {"user_id": user, "events": events} | times


@pytest.fixture
def read(tmp_path, monkeypatch) -> dict[str, Any]:
    """What the page's blocks define, in order."""
    monkeypatch.chdir(tmp_path)
    lake = Lake(str(tmp_path / "lake"))
    first = [session("ann", 0, 1, 3), session("bob", 0, 2, 4)]
    write(lake, "user_sessions", first, [session("ann", 1, 1, 5)])
    write(lake, "user_counts", [{"user_id": "ann", "total_count": 1, "at": AT}])
    counts = [{"device_id": 7, "count": n, "at": AT} for n in (1, 2)]
    write(lake, "device_signals", counts)
    health = [("search", "stale", 0), ("search", "ok", 1), ("billing", "stale", 0)]
    write(
        lake,
        "service_health",
        [{"service": name, "status": status, "at": AT + n * DAY} for name, status, n in health],
    )
    alert = {"user_id": "ann", "event_type": "purchase", "count": 6, "span_start": AT}
    write(lake, "threshold_alerts", [alert | {"at": AT}])
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(block, names)
    return names


def test_the_answers_are_those_of_the_tables(read):
    per_day = [row[:3] for row in read["sessions_per_day"].fetchall()]
    assert per_day == [(AT.date(), 2, 7), (AT.date() + DAY, 1, 5)]
    assert read["sessions_per_day"].fetchall()[0][3] == timedelta(hours=2)
    assert read["signals_of_devices"].fetchall() == [(7, 2)]
    now = [row[:2] for row in read["health_now"].fetchall()]
    assert now == [("billing", "stale"), ("search", "ok")]
    assert [row[:2] for row in read["alerts_of_users"].fetchall()] == [("ann", 1)]
    assert [row[:2] for row in read["most_active"].fetchall()] == [("ann", 1)]
    assert sorted(read["one_day"]["user_id"]) == ["ann", "bob"]


def test_versions_and_changes_are_those_of_the_commits(read):
    assert [version for version, _ in read["versions"]] == [2, 1, 0]
    assert read["rows_before"] == 2
    assert [row[0] for row in read["brought"].project("events").fetchall()] == [3, 4, 5]
