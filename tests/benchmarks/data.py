"""The files that all contenders read: one Parquet file a batch, stamped as bronze is."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from include.lake.table import ROWS_A_GROUP

HOUR_US = 3_600_000_000
START_US = 1_750_000_000_000_000 // HOUR_US * HOUR_US
INSTANT = pa.timestamp("us", tz="UTC")


PURCHASES = 0.5  # the share of events of the type that alerts watch


class Shape(NamedTuple):
    """An hour of event time per batch; `events` of each batch go to `active_keys` of `keys`."""

    events: int
    keys: int
    active_keys: int
    zipf: float = 0.0  # the keys' exponent; 0: each as often as the others


def write_batches(folder: Path, shapes: list[Shape], seed: int = 7) -> None:
    """One file for each shape, in order. Files that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    watermark: int | None = None
    for number, shape in enumerate(shapes):
        times = START_US + number * HOUR_US + rng.integers(0, HOUR_US, shape.events)
        keys = rng.choice(shape.keys, shape.active_keys, replace=False)
        users = keys[_drawn(rng, shape)]
        if shape.active_keys == shape.events:  # each key once: how a large state is laid down
            users = keys
        after = int(times.max()) // 1000 * 1000
        more = {
            "event_type": np.where(rng.random(shape.events) < PURCHASES, "purchase", "click"),
            "price": rng.integers(1, 10_000, shape.events),
        }
        _write(folder / f"{number:03}.parquet", users, times, watermark, after, more)
        watermark = after


def _drawn(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """The active key of each event."""
    if not shape.zipf:
        return rng.integers(0, shape.active_keys, shape.events)
    weights = 1 / np.arange(1, shape.active_keys + 1) ** shape.zipf
    return rng.choice(shape.active_keys, shape.events, p=weights / weights.sum())


def _write(
    path: Path,
    users: np.ndarray,
    times: np.ndarray,
    before: int | None,
    after: int,
    more: dict[str, np.ndarray],
) -> None:
    if path.exists():
        return
    count = len(users)
    table = pa.table(
        {
            "user_id": pa.array([f"user-{user}" for user in users.tolist()]),
            "event_time": pa.array(times, INSTANT),
            "watermark_before": pa.array([before] * count, INSTANT),
            "watermark_after": pa.array([after] * count, INSTANT),
            "is_heartbeat": pa.array(np.zeros(count, dtype=bool)),
            **more,
        }
    )
    pq.write_table(table, path, row_group_size=ROWS_A_GROUP)
