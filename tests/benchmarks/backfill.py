"""A daily backfill of thirty days, one recompute of all of them, and the live engine beside both.

    .venv/bin/python -m tests.benchmarks.backfill                  # half an hour on two cores
    .venv/bin/python -m tests.benchmarks.backfill --events 100000 --streams device_signals
    make bench ARGS="--only backfill"

All in one JVM, so that a job's own start is in no time; each time is of a whole run, with its
plan, its commits and its savepoints. One event in a hundred comes a day late: live has not
folded it, so each interval has something to correct, and no live savepoint can be its base.
What the three lakes come to must be the same, or there is no table. The machine should be
idle: compare only within one run.
"""

import os
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from include.fold.admission import EPOCH, MICROSECOND
from include.lake.columns import ARROW_TYPES
from include.lake.paths import Lake
from include.lake.stream_result import replaced_by
from include.registry import all_streams, source_named, stream_named
from include.savepoints.manifest import savepoints_of, states_in
from include.settings import PROJECT, SavepointRules, Stream
from include.spark.conf import FORKLESS, jars, job_conf
from include.spark.submit import job_environment
from include.stream_definition import load_definition
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.recompute_interval import recompute
from spark_jobs.run_stream import drain

BENCH = PROJECT / ".bench" / "backfill"
COMPARED = ("device_signals", "user_counts")  # one with a row for each event, one for each key
INSTANT = pa.timestamp("us", tz="UTC")
DAY = timedelta(days=1)
DAY_US = DAY // MICROSECOND
START_US = 1_772_323_200_000_000  # a midnight
KEYS = 20_000
LATE = 100  # one event in so many
DIFFERENCES = ("FROM one EXCEPT ALL FROM other", "FROM other EXCEPT ALL FROM one")


class Size(NamedTuple):
    """How much is folded."""

    events: int
    days: int

    @property
    def a_day(self) -> int:
        return self.events // self.days


FULL = Size(events=3_000_000, days=30)


class Line(NamedTuple):
    """A line of the table: what ran, over how many events, and how long each time."""

    label: str
    events: int
    seconds: list[float]

    @property
    def speed(self) -> float:
        """Events per second."""
        return self.events / statistics.median(self.seconds)


def commits(stream: Stream, size: Size) -> Iterator[pa.Table]:
    """What is ingested day by day; at last a day's late rows, and a clock row that closes it."""
    before_us, late = None, (np.array([], int), np.array([], int))
    for day in range(size.days + 1):
        rng = np.random.default_rng(day)
        count = size.a_day if day < size.days else 0
        keys = rng.integers(0, KEYS, count)
        times = START_US + day * DAY_US + rng.integers(0, DAY_US, count)
        in_time = slice(count // LATE, None)
        arrived = (np.append(keys[in_time], late[0]), np.append(times[in_time], late[1]))
        after_us = max(int(arrived[1].max()) // 1000 * 1000, before_us or 0)
        yield _bronze(stream, *arrived, day, (before_us, after_us))
        before_us, late = after_us, (keys[: count // LATE], times[: count // LATE])
    closing_us = START_US + size.days * DAY_US + stream.watermark_delay // MICROSECOND
    clock = np.array([closing_us])
    yield _bronze(stream, None, clock, size.days + 1, (before_us, closing_us))


def _bronze(
    stream: Stream, keys: Any, times: Any, number: int, watermarks: tuple[int | None, int]
) -> pa.Table:
    """A commit as ingestion stores it; without keys, of a clock row."""
    rows, key = len(times), load_definition(stream).fold.key
    columns = {
        field.name: pa.nulls(rows, ARROW_TYPES[field.type])
        if keys is None
        else _values(field.type, keys if field.name == key else np.ones(rows, int))
        for field in source_named(stream.source).fields
    }
    ingested_us = START_US + (number + 1) * DAY_US
    columns |= {
        "event_time": pa.array(times, INSTANT),
        "event_date": pa.array((times // DAY_US).astype("int32")).cast(pa.date32()),
        "ingested_at": pa.array([ingested_us] * rows, INSTANT),
        "arrival_watermark": pa.array([watermarks[0]] * rows, INSTANT),
        "commit_watermark": pa.array([watermarks[1]] * rows, INSTANT),
        "source_file": pa.array([None if keys is None else "a.jsonl"] * rows, pa.string()),
        "is_clock": pa.array([keys is None] * rows),
    }
    return pa.table(columns)


def _values(kind: str, numbers: Any) -> pa.Array:
    values = pa.array(numbers, pa.int64())
    return (
        pa.array([f"key-{n}" for n in numbers.tolist()])
        if kind == "string"
        else values.cast(ARROW_TYPES[kind])
    )


def append(lake: Lake, stream: Stream, rows: pa.Table) -> None:
    write_deltalake(lake.bronze(stream.source), rows, mode="append", partition_by=["event_date"])


class Bench:
    """One stream, measured in lakes of its own."""

    def __init__(self, spark: SparkSession, stream: Stream, size: Size) -> None:
        self._spark, self._stream, self._size = spark, stream, size
        every_day, all_at_once = size.a_day, size.a_day * size.days
        self.lines = {
            "live day": Line("live, a run for each day", every_day, []),
            "day": Line("**recompute of each day**, from the savepoint before it", every_day, []),
            "live": Line("live, one run for all", all_at_once, []),
            "all": Line("one recompute of all, a savepoint each million events", all_at_once, []),
            "bare": Line("the same, no savepoint but at its end", all_at_once, []),
        }

    def round(self) -> None:
        """Every line once more; RuntimeError when the lakes do not come to the same."""
        BENCH.mkdir(parents=True, exist_ok=True)
        # Spark remembers tables by their paths: each round has new ones.
        with tempfile.TemporaryDirectory(dir=BENCH, prefix=f"{self._stream.name}-") as root:
            lakes = {name: Lake(f"{root}/{name}") for name in ("day", "all", "bare")}
            self._by_day(lakes["day"])
            self._at_once(lakes["all"], "all", self._stream)
            rare = replace(self._stream, savepoints=SavepointRules(cadence=None))
            self._at_once(lakes["bare"], "bare", rare)
            for lake in lakes.values():
                check_replayed(lake, self._stream, self._size)
                check_same(lakes["day"], lake, self._stream, self._size)

    def _by_day(self, lake: Lake) -> None:
        stream = self._stream
        for day, rows in enumerate(commits(stream, self._size)):
            append(lake, stream, rows)
            if day < self._size.days:
                self._time("live day", lambda: drain(SparkEngine(self._spark), lake, stream))
        drain(SparkEngine(self._spark), lake, stream)
        for day in range(self._size.days):
            self._recompute("day", lake, stream, day, day + 1)

    def _at_once(self, lake: Lake, line: str, stream: Stream) -> None:
        for rows in commits(stream, self._size):
            append(lake, stream, rows)
        self._time("live", lambda: drain(SparkEngine(self._spark), lake, stream))
        self._recompute(line, lake, stream, 0, self._size.days)

    def _recompute(self, line: str, lake: Lake, stream: Stream, first: int, until: int) -> None:
        start, end = (EPOCH + START_US * MICROSECOND + day * DAY for day in (first, until))
        self._time(line, lambda: recompute(SparkEngine(self._spark), lake, stream, start, end))

    def _time(self, line: str, run: Callable[[], None]) -> None:
        began = time.monotonic()
        run()
        self.lines[line].seconds.append(time.monotonic() - began)
        say(f"{self._stream.name}: {self.lines[line].label}: {self.lines[line].seconds[-1]:.1f} s")


def check_replayed(lake: Lake, stream: Stream, size: Size) -> None:
    """Each event was replayed once: the recomputes began with each other's savepoints."""
    replayed = sum(row["rows_in"] for row in replaced_by(lake, stream.name))
    if replayed != size.a_day * size.days:
        raise RuntimeError(f"{lake.root}: replayed {replayed:,} of {size.a_day * size.days:,} rows")


def check_same(one: Lake, other: Lake, stream: Stream, size: Size) -> None:
    """The tables of both, and the states that their last recomputes came to, are equal."""
    states = {contents for lake in (one, other) for contents in _recomputed(lake, stream, size)}
    with duckdb.connect() as sql:
        for name, lake in (("one", one), ("other", other)):
            sql.register(name, DeltaTable(lake.table(stream.name)).to_pyarrow_table())
        found = [sql.execute(f"SELECT count(*) FROM ({query})").fetchall() for query in DIFFERENCES]
    if len(states) != 1 or found != [[(0,)], [(0,)]]:
        raise RuntimeError(f"{one.root} and {other.root} differ: rows {found}, states {states}")


def _recomputed(lake: Lake, stream: Stream, size: Size) -> Iterator[tuple[int, int, int]]:
    end_us = START_US + size.days * DAY_US
    for savepoint in savepoints_of(lake, stream.name):
        if (savepoint.until_us, savepoint.origin) == (end_us, "recompute"):
            rows = sorted(map(repr, states_in(lake, savepoint).to_table().to_pylist()))
            yield savepoint.events, savepoint.keys, hash(tuple(rows))


def table(stream: Stream, lines: dict[str, Line]) -> str:
    """Markdown: median, spread and speed of each line; then what compares."""
    text = [
        f"| {stream.name} | runs | events each | seconds (median) | spread | events per second |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines.values():
        spread = f"{min(line.seconds):.1f} - {max(line.seconds):.1f}"
        text.append(
            f"| {line.label} | {len(line.seconds)} | {line.events:,} "
            f"| {statistics.median(line.seconds):.1f} | {spread} | {line.speed:,.0f} |"
        )
    rounds = len(lines["all"].seconds)
    by_day = sum(lines["day"].seconds) / rounds
    whole = by_day / statistics.median(lines["all"].seconds)
    text.append(
        f"\nAll days one after the other: {by_day:.0f} s, {whole:.1f} times one recompute of all. "
        f"Replay's events per second are {_ratio(lines, 'day', 'live day')} times live's a day, "
        f"{_ratio(lines, 'all', 'live')} at once, {_ratio(lines, 'bare', 'live')} with one savepoint."
    )
    return "\n".join(text)


def _ratio(lines: dict[str, Line], replayed: str, live: str) -> str:
    return f"{lines[replayed].speed / lines[live].speed:.2f}"


def session(stream: Stream) -> SparkSession:
    """A job's session, but for the memory of more events than a job of a day has at once."""
    os.environ |= job_environment()
    builder = SparkSession.builder.master("local[2]").appName("bench-backfill")
    settings = (
        job_conf(stream)
        | FORKLESS
        | {"spark.jars": ",".join(map(str, jars())), "spark.driver.memory": "4g"}
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def measure(names: list[str], size: Size, rounds: int) -> None:
    """Print a table for each stream."""
    streams = [stream_named(name) for name in names]
    spark = session(streams[0])
    for stream in streams:
        Bench(spark, stream, Size(2_000, 2)).round()  # a cold JVM is nobody's time
        bench = Bench(spark, stream, size)
        for _ in range(rounds):
            bench.round()
        say(f"\n{table(stream, bench.lines)}\n")
    spark.stop()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=FULL.events)
    parser.add_argument("--days", type=int, default=FULL.days)
    parser.add_argument("--rounds", type=int, default=1)
    known = [stream.name for stream in all_streams()]
    parser.add_argument("--streams", nargs="+", choices=known, default=list(COMPARED))
    args = parser.parse_args()
    measure(args.streams, Size(args.events, args.days), args.rounds)


if __name__ == "__main__":
    main()
