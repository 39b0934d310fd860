"""What the rehearsal lands, and what it holds the tables against."""

import json
from collections import Counter
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from include.fold.instants import micros_of
from include.lake.paths import Lake
from include.landing.clock import LAGGING
from include.registry import stream_named
from tests.landed_sql import oracle_rows
from tests.rehearsal import api
from tests.rehearsal.landed import LATE_FILE, LATE_SIGNALS, START, Landing, Sample
from tests.rehearsal.rehearse import SAMPLE
from tests.rehearsal.spark_cluster import SparkCluster
from tests.rehearsal.translate import HOST, free_ports

ALERTS = stream_named("threshold_alerts")


def land_purchases(lake: Lake, count: int) -> None:
    folder = Path(lake.landing("user_events"))
    folder.mkdir(parents=True)
    times = [START + timedelta(seconds=number) for number in range(count)]
    lines = [
        {
            "user_id": "ann",
            "event_type": "purchase",
            "value": 1.0,
            "event_time": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        }
        for time in times
    ]
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize("above", [0, 1, 2])
def test_the_oracle_of_alerts_is_that_of_the_stream_s_own_limit(lake, above):
    limit = int(ALERTS.settings["limit"])
    land_purchases(lake, limit + above)
    found = oracle_rows(lake, ALERTS, micros_of(START + timedelta(days=1)))
    at = START + timedelta(seconds=limit)
    alert = ("ann", "purchase", limit + 1, micros_of(at - ALERTS.settings["span"]), micros_of(at))
    assert found == (Counter([alert]) if above else Counter())


def test_parts_land_in_order_and_with_the_last_one_no_producer_is_behind(lake, tmp_path):
    landing = Landing(lake, tmp_path / "staging", Sample(events=200, hours=5, parts=3))
    landing.stage("service_logs")
    folder = Path(lake.landing("service_logs"))
    seen: list[set[str]] = []
    while landing.has_next("service_logs"):
        assert (folder / LAGGING).exists()
        landing.land_next("service_logs")
        seen.append({file.name for file in folder.iterdir()} - {LAGGING})
    assert len(seen) == 3
    assert seen[0] < seen[1] < seen[2]
    assert max(seen[0]) < min(seen[1] - seen[0])
    assert not (folder / LAGGING).exists()
    lines = [line for file in folder.iterdir() for line in file.read_bytes().splitlines()]
    assert landing.rows == {"service_logs": len(lines)}
    assert len(lines) >= 200


def test_late_signals_are_older_than_what_two_parts_have_settled(lake, tmp_path):
    """Two parts have landed by then; signals newer than that would make the next parts late."""
    landing = Landing(lake, tmp_path / "staging", SAMPLE)
    landing.stage("signals")
    folder = Path(lake.landing("signals"))
    for _ in range(2):
        landing.land_next("signals")
    lines = [line for file in folder.iterdir() for line in file.read_text().splitlines()]
    newest = max(time for line in lines if (time := stamp_of(line)) is not None)
    landing.land_late_signals()
    late = [stamp_of(line) for line in (folder / LATE_FILE).read_text().splitlines()]
    assert len(late) == LATE_SIGNALS
    assert max(late) < newest - stream_named("device_signals").watermark_delay


def stamp_of(line: str) -> datetime | None:
    """The event time of a good line; None of a malformed one."""
    try:
        time = datetime.fromisoformat(json.loads(line)["timestamp"])
    except (ValueError, KeyError, TypeError):
        return None
    return time if time.tzinfo and time.year == START.year else None


def failing(*errors: Exception) -> tuple[list[Exception], object]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return left, call


def http_error(code: HTTPStatus) -> HTTPError:
    return HTTPError("http://x", code, code.phrase, None, None)  # type: ignore[arg-type]


def test_the_api_is_asked_again_while_it_is_away(monkeypatch):
    monkeypatch.setattr(api, "SECONDS_BETWEEN_TRIES", 0)
    outage = (URLError("refused"), ConnectionResetError(), http_error(HTTPStatus.BAD_GATEWAY))
    left, call = failing(*outage)
    assert api.patiently(call) == "answer"
    assert left == []


def test_what_is_wrong_with_a_call_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(api, "SECONDS_BETWEEN_TRIES", 0)
    left, call = failing(http_error(HTTPStatus.NOT_FOUND), URLError("not reached"))
    with pytest.raises(HTTPError, match="404"):
        api.patiently(call)
    assert len(left) == 1


def test_an_outage_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(api, "OUTAGE_DEADLINE", -1)
    _, call = failing(URLError("refused"))
    with pytest.raises(URLError, match="refused"):
        api.patiently(call)


def test_a_master_that_is_down_has_no_workers_and_runs_nothing():
    (port,) = free_ports(1)
    master = SparkCluster(f"http://{HOST}:{port}")
    assert master.alive_workers() == []
    assert not master.is_running("run_stream-user_counts")
