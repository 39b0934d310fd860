"""`./stateful explain` against SQL over what has landed: which rows of a key came from which events."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from include.fold.admission import micros_of
from include.lake.paths import Lake
from tests import dags
from tests.faults.command_line import CommandLine
from tests.simulator.live_model import LiveModel
from tests.simulator.local_engine import LocalEngine

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE, GAP = timedelta(minutes=1), timedelta(minutes=30)
USERS = ("ann", "bob", "cy")
# Of a session its events and, where it is closed by then, when: an event of its very end begins a new one.
SESSIONS = """
    WITH events AS (
        SELECT epoch_us(event_time::TIMESTAMPTZ) AS time
        FROM read_json($files, format = 'newline_delimited') WHERE user_id = $user
    ), begun AS (
        SELECT *, time - lag(time, 1, time) OVER (ORDER BY time) >= 1_800_000_000 AS begins FROM events
        WHERE time < $until
    ), numbered AS (SELECT *, count_if(begins) OVER (ORDER BY time) AS session FROM begun)
    SELECT list(time ORDER BY time), max(time) + 1_800_000_000 FROM numbered GROUP BY session ORDER BY 2
"""


@pytest.fixture(scope="module")
def commands() -> Iterator[CommandLine]:
    commands = CommandLine(lambda: LocalEngine(LiveModel()))
    with commands.installed():
        yield commands


def land(lake: Lake, name: str, events: list[tuple[str, int]]) -> None:
    known = {"event_type": "look", "value": 1}
    times = [(user, (START + n * MINUTE).isoformat()) for user, n in events]
    rows = [known | {"user_id": user, "event_time": at} for user, at in times]
    dags.land(lake, *map(json.dumps, rows), file=name)


def run(commands: CommandLine, lake: Lake) -> None:
    told = commands.stateful(lake.root, "stream user_sessions")
    assert told.code == 0, told.text


def explained(commands: CommandLine, lake: Lake, user: str) -> dict[str, Any]:
    told = commands.stateful(lake.root, f"explain user_sessions {user} --days 3650 --json")
    assert told.code == 0, told.text
    found: dict[str, Any] = json.loads(told.text)
    return found


def us(text: str) -> int:
    return micros_of(datetime.fromisoformat(text))


def sessions(lake: Lake, user: str, until_us: int) -> list[tuple[list[int], int]]:
    files = [str(path) for path in Path(lake.landing("user_events")).iterdir()]
    return duckdb.execute(SESSIONS, {"files": files, "user": user, "until": until_us}).fetchall()


def closed_by(steps: list[dict[str, Any]]) -> Iterator[tuple[list[int], int, dict[str, Any]]]:
    """Each row with the events between the one before and it, and its instant; of steps in order."""
    events: list[int] = []
    for step in steps:
        for output in step["outputs"]:
            yield events, us(output["emitted_at"]), output
            events = []
        events = events + [us(event["at"]) for event in step["events"]]


@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_explained_by_the_events_of_its_session(commands, lake, seed):
    rng = random.Random(seed)
    for number in range(2):
        minutes = sorted(rng.sample(range(number * 300, number * 300 + 300), 40))
        # Also at the very end of a gap.
        events = [(rng.choice(USERS), n) for n in minutes] + [("ann", number * 300)]
        land(lake, f"{number}.jsonl", [*events, ("ann", number * 300 + 30)])
        run(commands, lake)
    for user in USERS:
        found = explained(commands, lake, user)
        until_us = us(found["until"])
        steps = list(reversed(found["steps"]))
        rows = list(closed_by(steps))
        *closed, last = sessions(lake, user, until_us)
        closed += [last] if last[1] < until_us else []
        assert [events for events, *_ in rows] == [events for events, _ in closed]
        for (events, emitted_us, output), (_, ends_us) in zip(rows, closed, strict=True):
            assert json.loads(output["text"])["events"] == len(events)
            assert emitted_us >= ends_us
        if last[1] >= until_us:
            assert json.loads(found["state"]["state"])["events"] == len(last[0])
            assert us(found["state"]["timeout_at"]) == last[1]
        else:
            assert found["state"]["state"] is None
        assert all(us(event["at"]) >= until_us for event in found["pending"])
        assert (found["late"], found["failure"]) == (0, None)


def test_an_event_that_came_late_is_said_and_the_row_that_it_changes(commands, lake):
    land(lake, "0.jsonl", [("ann", 0), ("bob", 300)])
    run(commands, lake)
    land(lake, "1.jsonl", [("ann", 10), ("bob", 301)])
    run(commands, lake)
    found = explained(commands, lake, "ann")
    assert found["late"] == 1
    (output,) = [output for step in found["steps"] for output in step["outputs"]]
    assert json.loads(output["text"])["events"] == 2
    told = commands.stateful(lake.root, "explain user_sessions ann --days 3650")
    assert told.code == 0
    for said in (output["text"], "late"):
        assert said in told.text
