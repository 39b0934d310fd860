"""From how much history on a run is cheaper than a recompute of everything.

    make bench ARGS="--only history --rounds 3"          # some minutes, and 2 GB of disk

A recompute is one SQL statement of DuckDB over all events so far, as Parquet on the local disk. What
it takes for a million more is measured between 1, 10 and 100 million events; the run's price is that
of `price.py`, in the same window.
"""

import statistics
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks import price
from tests.benchmarks.data import INSTANT, START_US

MILLION = 1_000_000
HISTORIES = (1, 10, 100)  # millions of events
KEYS = 1_000_000
RECOMPUTE = "SELECT user_id, count(*), max(event_time) FROM read_parquet($files) GROUP BY user_id"


def measure(folder: Path, rounds: int) -> str:
    """Markdown: a recompute by how much there is, the price of a run, and where they meet."""
    write_history(folder / "history")
    seconds: dict[int, list[float]] = {millions: [] for millions in HISTORIES}
    for _ in range(rounds):
        for millions in HISTORIES:
            seconds[millions].append(recompute(folder / "history", millions))
    costs = price.measure(folder, rounds)
    medians = {millions: statistics.median(taken) for millions, taken in seconds.items()}
    least, most = min(HISTORIES), max(HISTORIES)
    each = (medians[most] - medians[least]) / (most - least)
    run = price.price_of_a_run(costs)
    lines = ["| events | recompute by DuckDB, s | spread |", "|---|---|---|"]
    for millions, taken in seconds.items():
        spread = f"{min(taken):.2f} - {max(taken):.2f}"
        lines.append(f"| {millions} M | {medians[millions]:.2f} | {spread} |")
    lines += [
        "",
        price.table(costs),
        "",
        f"A run takes {run:.1f} s, a recompute {each:.3f} s for each million events: they meet at "
        f"{run / each:.0f} million.",
    ]
    return "\n".join(lines)


def write_history(folder: Path) -> None:
    """A file for each million events. Those that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    for number in range(max(HISTORIES)):
        users = rng.integers(0, KEYS, MILLION)
        times = START_US + number * 3_600_000_000 + rng.integers(0, 3_600_000_000, MILLION)
        path = folder / f"{number:03}.parquet"
        if not path.exists():
            keys = pa.array([f"user-{user}" for user in users.tolist()])
            pq.write_table(
                pa.table({"user_id": keys, "event_time": pa.array(times, INSTANT)}), path
            )


def recompute(folder: Path, millions: int) -> float:
    """Seconds of the statement over so many million events; its result is counted."""
    files = [str(folder / f"{number:03}.parquet") for number in range(millions)]
    with duckdb.connect() as connection:
        began = time.monotonic()
        table = connection.execute(RECOMPUTE, {"files": files}).to_arrow_table()
        seconds = time.monotonic() - began
    counted = pc.sum(table.column(1)).as_py()
    if counted != millions * MILLION:
        raise RuntimeError(f"the recompute counted {counted:,} of {millions * MILLION:,} events")
    sys.stdout.write(f"recompute of {millions} M: {seconds:.2f} s\n")
    sys.stdout.flush()
    return seconds
