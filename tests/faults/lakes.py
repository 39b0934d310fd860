"""A lake with a history, to be harmed: three runs of a stream, and what its tables must come to.

What lands is known, none of it is late, and each file has one line that is none. So there is one
right answer, whatever is replayed: it is counted here from the lines alone.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from include.fold.admission import instant_of, micros_of
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from include.streams import sources
from tests.declared import register

HOUR_US = 3_600_000_000
START_US = 1_750_032_000_000_000  # a midnight
FILE_HOURS = 20
ROWS = 30
KEYS = 4
BROKEN_LINE = '{"this is": "no event"'
# Few buckets, and a savepoint at each midnight that a run passes.
STREAMS = {
    name: replace(
        stream_named(name), buckets=3, state_partitions=2, savepoints=SavepointRules(events_apart=1)
    )
    for name in ("device_signals", "user_counts")
}
COLUMNS = {"device_signals": ("device_id", "count"), "user_counts": ("user_id", "total_count")}


@contextmanager
def registered() -> Iterator[None]:
    """These streams alone, in the place of the shipped ones."""
    with pytest.MonkeyPatch.context() as patch:
        register(patch, lambda: STREAMS)
        landed = tuple(source for source in sources.SOURCES if source.parent is None)
        patch.setattr(sources, "SOURCES", landed)
        yield


@dataclass(frozen=True)
class Event:
    """A row as it lands."""

    key: int
    time_us: int

    def line(self, source: str) -> str:
        at = instant_of(self.time_us).isoformat()
        if source == "signals":
            return json.dumps({"device_id": self.key, "timestamp": at, "value": 1})
        event = {"user_id": f"u{self.key}", "event_time": at, "event_type": "look", "value": 1}
        return json.dumps(event)


def events_of(number: int) -> list[Event]:
    """The events of the file with that number, each at a time of its own, after the file before."""
    start_us = START_US + number * FILE_HOURS * HOUR_US
    apart_us = FILE_HOURS * HOUR_US // ROWS
    return [Event(n % KEYS, start_us + n * apart_us + n) for n in range(ROWS)]


@dataclass(frozen=True)
class Story:
    """A lake, its stream, and how many files have landed by now."""

    lake: Lake
    stream: Stream
    landed: int

    @property
    def root(self) -> Path:
        return Path(self.lake.root)

    def land(self) -> "Story":
        """One more file."""
        source = self.stream.source
        folder = Path(self.lake.landing(source))
        folder.mkdir(parents=True, exist_ok=True)
        lines = [event.line(source) for event in events_of(self.landed)]
        (folder / f"{self.landed}.jsonl").write_text("\n".join([*lines, BROKEN_LINE]))
        return replace(self, landed=self.landed + 1)

    def copied(self, folder: Path) -> "Story":
        return replace(self, lake=Lake(str(shutil.copytree(self.root, folder))))

    def differences(self) -> list[str]:
        """The tables that are not as they must be, once all that has landed is ingested."""
        events = [event for number in range(self.landed) for event in events_of(number)]
        name, source = self.stream.name, self.stream.source
        delay_us = self.stream.watermark_delay // timedelta(microseconds=1)
        until_us = max(event.time_us for event in events) // 1000 * 1000 - delay_us + 1
        complete = [event for event in events if event.time_us < until_us]
        found = {
            "product": (_product(self.lake, name), _expected(name, complete)),
            "bronze": (
                _bronze(self.lake, source),
                Counter((str(event.key), event.time_us) for event in events),
            ),
            "quarantine": (_count(self.lake.quarantine(source)), self.landed),
        }
        return [
            f"{name} has {_amount(is_there)}, must have {_amount(must)}"
            for name, (is_there, must) in found.items()
            if is_there != must
        ]


def _amount(rows: Any) -> str:
    return str(rows if isinstance(rows, int) else f"{sum(rows.values())} rows ({hash_of(rows)})")


def hash_of(rows: Counter[Any]) -> str:
    return f"{hash(frozenset(rows.items())) & 0xFFFF:04x}"


def _expected(stream: str, events: list[Event]) -> Counter[Any]:
    counts: Counter[int] = Counter()
    rows: dict[Any, tuple[Any, int]] = {}
    for event in sorted(events, key=lambda event: event.time_us):
        counts[event.key] += 1
        if stream == "device_signals":
            rows[event] = ((event.key, counts[event.key]), event.time_us)
        else:
            rows[event.key] = ((f"u{event.key}", counts[event.key]), event.time_us)
    return Counter(rows.values())


def _product(lake: Lake, stream: str) -> Counter[Any]:
    names = COLUMNS[stream]
    return Counter(
        (tuple(row[name] for name in names), micros_of(row["emitted_at"]))
        for row in _rows(lake.table(stream))
    )


def _bronze(lake: Lake, source: str) -> Counter[Any]:
    key = "device_id" if source == "signals" else "user_id"
    return Counter(
        (str(row[key]).removeprefix("u"), micros_of(row["event_time"]))
        for row in _rows(lake.bronze(source))
        if not row["is_heartbeat"]
    )


def _count(path: str) -> int:
    return len(_rows(path))


def _rows(path: str) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []


def time_of(number: int) -> datetime:
    """The midnight that many days after the first."""
    return instant_of(START_US + number * 24 * HOUR_US)
