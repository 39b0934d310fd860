"""From how much history on a run is cheaper than a recompute of everything.

    make bench ARGS="--only history --rounds 3"          # some minutes, and 2 GB of disk

A recompute is one query of DuckDB, or of polars, over all events so far, as Parquet on the local
disk. What it takes for a million more is measured between 1 and 100 million events; the run's price
is that of `price.py`, in the same window.
"""

import statistics
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
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
    """Markdown: the recomputes by how much there is, the price of a run, and where they meet."""
    write_history(folder / "history")
    seconds = {(name, millions): [] for name in RECOMPUTES for millions in HISTORIES}
    for _ in range(rounds):
        for name, millions in seconds:
            seconds[name, millions].append(recompute(name, folder / "history", millions))
    costs = price.measure(folder, rounds)
    meet = where_they_meet(seconds, costs.of_a_run)
    return "\n".join([*table(seconds), "", price.table(costs), "", *meet])


def table(seconds: dict[tuple[str, int], list[float]]) -> list[str]:
    lines = ["| events | recompute by | seconds | spread |", "|---|---|---|---|"]
    for (name, millions), taken in seconds.items():
        spread = f"{min(taken):.2f} - {max(taken):.2f}"
        lines.append(f"| {millions} M | {name} | {statistics.median(taken):.2f} | {spread} |")
    return lines


def where_they_meet(seconds: dict[tuple[str, int], list[float]], run: float) -> list[str]:
    """For each who recomputes: its seconds for a million more, and how many cost as much as a run."""
    lines, (least, *_, most) = [], HISTORIES
    for name in RECOMPUTES:
        few, many = (statistics.median(seconds[name, millions]) for millions in (least, most))
        each = (many - few) / (most - least)
        lines.append(
            f"A run takes {run:.1f} s, a recompute by {name} {each:.3f} s for each million events: "
            f"they meet at {run / each:.0f} million."
        )
    return lines


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


def recompute(name: str, folder: Path, millions: int) -> float:
    """Seconds of the query over so many million events; its result is counted."""
    files = [str(folder / f"{number:03}.parquet") for number in range(millions)]
    began = time.monotonic()
    counted = RECOMPUTES[name](files)
    seconds = time.monotonic() - began
    if counted != millions * MILLION:
        raise RuntimeError(f"{name} counted {counted:,} of {millions * MILLION:,} events")
    sys.stdout.write(f"recompute of {millions} M by {name}: {seconds:.2f} s\n")
    sys.stdout.flush()
    return seconds


def by_duckdb(files: list[str]) -> int:
    with duckdb.connect() as connection:
        rows = connection.sql(RECOMPUTE, params={"files": files}).to_arrow_table()
    return int(pc.sum(rows.column(1)).as_py())


def by_polars(files: list[str]) -> int:
    counted = pl.len().alias("events"), pl.col("event_time").max()
    rows = pl.scan_parquet(files).group_by("user_id").agg(*counted).collect()
    return int(rows["events"].sum())


RECOMPUTES = {"DuckDB": by_duckdb, "polars": by_polars}
