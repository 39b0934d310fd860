"""The shipped chain of three streams on Spark, by the command line: what goes downstream is killed at its writes.

Whenever nothing runs, each table is what loops over all landed events come to, or its status says where not.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGKILL
from subprocess import Popen
from typing import Any

import pytest
from pyspark.sql import SparkSession

from include.fold.admission import micros_of
from include.lake.paths import Lake, made_lake
from tests.amend.rocksdb import unpacked_by
from tests.amend.scan import files_with
from tests.chaos.__main__ import SHORT_RUN
from tests.faults.own_process import start
from tests.faults.pairs import standing_still, watched
from tests.simulator.cascade import Cascade, Rows

pytestmark = [pytest.mark.full, pytest.mark.spark]

ROOT, CHILD, GRANDCHILD = NAMES = ("user_sessions", "session_streaks", "streak_alerts")
SOURCE_OF = {ROOT: "user_events", CHILD: "sessions", GRANDCHILD: "streaks"}
COLUMNS = {
    ROOT: ("user_id", "session_start", "session_end", "events"),
    CHILD: ("user_id", "streak_start", "sessions"),
    GRANDCHILD: ("user_id", "sessions", "before"),
}
DAY, COMPLETE = datetime(2026, 3, 1, tzinfo=UTC), "2026-03-02T15:50:00.000001Z"
GAP, WITHIN, LENGTH = timedelta(minutes=30), timedelta(hours=2), 5
SECRET = "0123456789abcdef" * 2
# Of each user the hours with an event.
HOURS = {"ann": (1, 2, 3, 4, 8, 9), "bob": (1, 2, 3, 4, 5, 10), SECRET: range(2, 7), "end": (40,)}
Events = list[tuple[str, datetime]]
EVENTS = [(user, DAY + timedelta(hours=hour)) for user, hours in HOURS.items() for hour in hours]
LATE = [("ann", DAY + timedelta(hours=hour)) for hour in (5.8, 6.5)]  # they join two streaks
# At the second of the commits bronze lacks what its log has.
LOGS = (f"tables/{ROOT}", "ingest_log/sessions", f"tables/{CHILD}")
COMMITS = [f"{log}/_delta_log/*.json" for log in LOGS]
SAVEPOINTS = [f"savepoints/{name}/*/manifest.json" for name in (ROOT, GRANDCHILD)]


def runs(rows: Iterable[Any], within: timedelta) -> list[list[Any]]:
    """The rows, whose first value is an instant, cut where the next one comes too late."""
    found: list[list[Any]] = []
    for row in sorted(rows):
        if not found or row[0] - found[-1][-1][0] >= within:
            found.append([])
        found[-1].append(row)
    return found


class Chain(Cascade):
    """A lake of the shipped chain, and what has landed in it."""

    source_of, columns = SOURCE_OF, COLUMNS

    def __init__(self, root: Path, events: Events) -> None:
        self.lake, self.root, self.events = Lake(str(root)), root, [*events]
        self.said = root.with_suffix(".log")
        self.erased, self.compared = "", 0

    def put(self, name: str, events: Events) -> None:
        """Land a file, and ingest it."""
        file = self.root / "landing" / SOURCE_OF[ROOT] / f"{name}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        values = [{"user_id": user, "event_time": at.isoformat()} for user, at in events]
        rows = [{"event_type": "x", "value": 1, **each} for each in values]
        file.write_text("\n".join(map(json.dumps, rows)))
        self.do(f"ingest {SOURCE_OF[ROOT]}")
        self.events += events

    def expected(self, without: str = "") -> dict[str, Rows]:
        found: dict[str, Rows] = {name: Counter() for name in NAMES}
        for user in {user for user, _ in self.events} - {without}:
            sessions = runs(((at,) for of, at in self.events if of == user), GAP)
            ended = [(each[-1][0] + GAP, each[0][0], each[-1][0], len(each)) for each in sessions]
            streaks = [(e[-1][0] + WITHIN, e[0][1], len(e)) for e in runs(ended, WITHIN)]
            longest, alerts = 0, []
            for ended_at, _, length in streaks:
                if length >= max(LENGTH, longest + 1):
                    alerts.append((ended_at, length, longest))
                longest = max(longest, length)
            for name, rows in zip(NAMES, (ended, streaks, alerts), strict=True):
                found[name].update((micros_of(row[0]), (user, *row[1:])) for row in rows)
        return found

    def check(self) -> None:
        """An erasure under way has reached some of the tables."""
        before = self.expected()
        for name, after in self.expected(without=self.erased).items():
            self.check_table(self.status(name), before[name], after)

    def is_right(self) -> bool:
        self.check()
        return not any(self.status(name).table_status.wrong for name in NAMES)

    def do(self, command: str) -> None:
        assert self._start(command).wait() == 0, self.said.read_text(errors="replace")[-5000:]

    def kill(self, command: str, write: str) -> None:
        """Kill all processes of a command as soon as a new file of that pattern is there."""
        known = {*self.root.glob(write)}
        with (
            watched(self.root) as changes,
            standing_still(self._start(command), self.root, changes) as job,
        ):
            while job.code is None and {*self.root.glob(write)} <= known:
                next(changes)
        assert job.code == -SIGKILL, (write, self.said.read_text(errors="replace")[-5000:])
        self.check()

    def _start(self, command: str) -> Popen[bytes]:
        more = SHORT_RUN | {"TMPDIR": str(self.root.parent)}
        return start(str(self.root), command, self.said, more, program=["include.cli"])


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A chain whose tables have all rows."""
    chain = Chain(Path(made_lake(str(tmp_path_factory.mktemp("begun") / "lake")).root), [])
    chain.put("first", EVENTS)
    for name in NAMES:
        chain.do(f"stream {name}")
    assert chain.is_right()
    assert chain.compared == 17 + 5 + 2  # not those of "end"
    return chain


@pytest.fixture
def chain(begun: Chain, tmp_path: Path) -> Chain:
    return Chain(shutil.copytree(begun.root, tmp_path / "lake"), begun.events)


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        (f"restate {ROOT} {DAY:%F} {COMPLETE} --downstream", COMMITS),
        (f"rebuild {ROOT} --downstream --apply", SAVEPOINTS),
    ],
)
def test_late_rows_go_downstream_through_kills(chain: Chain, command: str, writes: list[str]):
    chain.put("late", LATE)
    for write in writes:
        assert not chain.is_right()
        chain.kill(command, write)
    chain.do(command)
    assert chain.is_right()
    assert -1 in chain.weights(GRANDCHILD)


def test_an_erasure_at_the_root_goes_downstream_through_kills(chain: Chain, spark: SparkSession):
    command, unpack = f"erase {ROOT} {SECRET} --apply", unpacked_by(spark)
    chain.erased = SECRET
    for write in (COMMITS[0], SAVEPOINTS[1]):
        assert files_with(chain.root, [SECRET.encode()], unpack)
        chain.kill(command, write)
    chain.do(command)
    assert files_with(chain.root, [SECRET.encode()], unpack) == set()
    chain.events = [event for event in chain.events if event[0] != SECRET]
    assert chain.is_right()
