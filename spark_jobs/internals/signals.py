"""Three small batches of device signals, and what is counted in them, in plain Python.

The third batch has a signal that is late for everyone (11:50) and one that only bronze finds
late (12:15): Spark's own late filter goes by the watermark of the batch before.
"""

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
from deltalake import write_deltalake

DAY = date(2026, 3, 1)
WATERMARK_DELAY = timedelta(minutes=10)
# A device that is silent for longer is given up, and its state removed.
SILENCE = timedelta(minutes=15)
INSTANT = pa.timestamp("us", tz="UTC")


class Signal(NamedTuple):
    device_id: int
    at: datetime


def _signals(*written: str) -> list[Signal]:
    """Signals from `device@HH:MM`."""
    parts = (text.split("@") for text in written)
    return [
        Signal(int(device), datetime.fromisoformat(f"{DAY}T{time}").replace(tzinfo=UTC))
        for device, time in parts
    ]


BATCHES = (
    _signals("1@12:00", "1@12:02", "2@12:01", "3@12:03"),
    _signals("1@12:30", "2@12:22"),
    _signals("1@11:50", "2@12:15", "1@12:50"),
)


def write_bronze(path: str) -> None:
    """A bronze table with each of the batches as one commit, stamped as ingestion stamps it."""
    newest: datetime | None = None
    for batch in BATCHES:
        before, newest = newest, _newest(batch, newest)
        columns = {
            "device_id": [signal.device_id for signal in batch],
            "value": [1] * len(batch),
            "event_time": pa.array([signal.at for signal in batch], INSTANT),
            "arrival_watermark": pa.array([before] * len(batch), INSTANT),
            "commit_watermark": pa.array([newest] * len(batch), INSTANT),
            "is_clock": [False] * len(batch),
        }
        write_deltalake(path, pa.table(columns), mode="append")


def _newest(batch: list[Signal], newest: datetime | None = None) -> datetime:
    """The newest event time so far."""
    times = [signal.at for signal in batch]
    return max(times if newest is None else [newest, *times])


def expected_counts(commits_behind: int) -> dict[int, int]:
    """Signals per device, without those that are late by the watermark of some commits ago.

    Bronze goes by the commit before a row's own (1), Spark's operator by the one before that
    (2): the watermark that it compares with is the previous batch's.
    """
    counts: dict[int, int] = {}
    for number, batch in enumerate(BATCHES):
        seen = BATCHES[: max(number + 1 - commits_behind, 0)]
        known = [signal.at for earlier in seen for signal in earlier]
        for signal in batch:
            if not known or signal.at > max(known) - WATERMARK_DELAY:
                counts[signal.device_id] = counts.get(signal.device_id, 0) + 1
    return counts
