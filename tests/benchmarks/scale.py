"""What a stream costs by its number of keys: the figures of docs/scale.md.

    .venv/bin/python -m tests.benchmarks.scale                  # 500,000 and 5,000,000 keys
    .venv/bin/python -m tests.benchmarks.scale --keys 20000

For each number of keys a lake of its own, and real jobs, each with a JVM of its own, so that it
loads its state as scheduled runs do: a first run that brings every key, a dense one (an event for
a tenth of the keys), sparse ones (10,000 events of 1,000 keys), a savepoint, a compaction, and a
reseed to more buckets with sparse runs after it. The machine should be idle.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from include.lake.generations import read_generations
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.registry import stream_named
from include.savepoints.manifest import savepoints_of
from include.settings import PROJECT
from include.spark.submit import job_environment, submit_command
from tests.bronze import of_ours

BENCH = PROJECT / ".bench" / "scale"
STREAM = stream_named("user_counts")
KEYS = [500_000, 5_000_000]
MORE_BUCKETS = 256
COMMIT_ROWS = 1_000_000
SPARSE = (10_000, 1_000)  # events, keys
HOUR_US = 3_600_000_000
START_US = 1_772_323_200_000_000  # a midnight
INSTANT = pa.timestamp("us", tz="UTC")
MEMORY = "6g"  # of the one JVM, which is the driver and the executors here
MIB = 1024**2


class Figures(NamedTuple):
    """What one job took. Of jobs without a batch of the stream, only the first three."""

    step: str
    seconds: float
    memory_mib: tuple[int, int]  # the most of the JVM, and of the Python processes
    batch_ms: int | None = None
    load_ms: int | None = None
    checkpoint_mib: float | None = None


class Growing:
    """A lake whose stream gets its events hour by hour."""

    def __init__(self, root: Path, keys: int) -> None:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        self.lake = Lake(str(root))
        self._keys, self._hour, self._newest_us = keys, 0, START_US

    def figures(self) -> Iterator[Figures]:
        """Each step, done when it is asked for."""
        everyone = np.random.default_rng(0).permutation(self._keys)
        for start in range(0, self._keys, COMMIT_ROWS):
            self._append(everyone[start : start + COMMIT_ROWS])
        yield self._run("first run, an event of each key")
        self._append(everyone[: self._keys // 10])
        yield self._run("dense run, a tenth of the keys")
        yield self._sparse("sparse run")
        yield self._job("savepoint", "write_savepoint")
        yield self._job("compaction", "compact_state")
        yield self._sparse("sparse run after it")
        yield self._job(
            f"reseed to {MORE_BUCKETS} buckets", "reseed_stream", f"--buckets={MORE_BUCKETS}"
        )
        yield self._sparse("its first run")
        yield self._sparse(f"sparse run, {MORE_BUCKETS} buckets")

    def _sparse(self, step: str) -> Figures:
        events, keys = SPARSE
        rng = np.random.default_rng(self._hour)
        self._append(rng.choice(rng.integers(0, self._keys, keys), events))
        return self._run(step)

    def _append(self, keys: Any) -> None:
        """A commit of an event for each of `keys`, within the next hour."""
        start_us = START_US + self._hour * HOUR_US
        times = start_us + np.sort(
            np.random.default_rng(self._hour).integers(0, HOUR_US, len(keys))
        )
        newest_us = int(times[-1]) // 1000 * 1000
        count, first = len(keys), self._hour == 0
        columns = {
            "user_id": pa.array([f"user-{key:09}" for key in keys.tolist()]),
            "event_type": pa.array(["view"] * count),
            "value": pa.array(np.ones(count)),
            "event_time": pa.array(times, INSTANT),
            "event_date": pa.array((times // (24 * HOUR_US)).astype("int32")).cast(pa.date32()),
            "ingested_at": pa.array([start_us + HOUR_US] * count, INSTANT),
            "arrival_watermark": pa.array([None if first else self._newest_us] * count, INSTANT),
            "commit_watermark": pa.array([newest_us] * count, INSTANT),
            "source_file": pa.array(["a.jsonl"] * count),
            "is_clock": pa.array([False] * count),
        }
        path = self.lake.bronze(STREAM.source)
        write_deltalake(
            path,
            pa.table(columns),
            mode="append",
            partition_by=["event_date"],
            commit_properties=of_ours(),
        )
        self._hour, self._newest_us = self._hour + 1, newest_us

    def _run(self, step: str) -> Figures:
        """A run of the stream, with the time of its batch of data and of loading the state."""
        done = self._job(step, "run_stream")
        batches = read_ops(self.lake, "batches", {"stream": STREAM.name}).to_pylist()
        newest = max(batches, key=lambda row: row["committed_at"])["run_id"]
        of_run = sorted(
            (row for row in batches if row["run_id"] == newest), key=lambda row: row["batch_id"]
        )
        (metrics,) = json.loads(of_run[0]["state_metrics"])
        return done._replace(
            batch_ms=sum(_trigger_ms(row) for row in of_run),
            load_ms=metrics["rocksdbLoadLatencyMs"],
        )

    def _job(self, step: str, job: str, *options: str) -> Figures:
        seconds = submit(job, self.lake, *options)
        run = max(read_ops(self.lake, "runs").to_pylist(), key=lambda row: row["ended_at"])
        memory = int(run["jvm_rss_bytes"]) // MIB, int(run["python_rss_bytes"]) // MIB
        checkpoint = self.lake.checkpoint(
            STREAM.name, read_generations(self.lake, STREAM.name).number
        )
        return Figures(step, seconds, memory, checkpoint_mib=bytes_below(Path(checkpoint)) / MIB)


def _trigger_ms(batch: dict[str, Any]) -> int:
    return int(json.loads(batch["durations_ms"])["triggerExecution"])


def submit(job: str, lake: Lake, *options: str) -> float:
    """Seconds that the job took, JVM start and all; RuntimeError with its words when it fails."""
    arguments = ["--stream", STREAM.name, "--lake", lake.root, *options]
    submit_with, *command = submit_command(job, arguments, STREAM, "local[2]")
    began = time.monotonic()
    done = subprocess.run(
        [submit_with, "--driver-memory", MEMORY, *command],
        env=os.environ | job_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr[-4000:]}")
    return time.monotonic() - began


def bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def sizes(lake: Lake, keys: int) -> Iterator[str]:
    """Bytes of each kind of data, and what a key or an event of it takes."""
    events = read_ops(lake, "runs", {"job": "run_stream"}).column("rows_in").to_pylist()
    savepoints = len(savepoints_of(lake, STREAM.name))
    for what, folder, count in (
        ("bronze", lake.bronze(STREAM.source), sum(events)),
        ("table, all versions", lake.table(STREAM.name), keys),
        (f"{savepoints} savepoints", lake.savepoints(STREAM.name), keys * savepoints),
    ):
        size = bytes_below(Path(folder))
        yield f"| {what} | {size / MIB:,.1f} MiB | {size / count:.1f} |"


def measure(keys: int) -> None:
    """Print the tables of one number of keys."""
    growing = Growing(BENCH / str(keys), keys)
    say(f"\n{keys:,} keys, {STREAM.buckets} buckets, {STREAM.state_partitions} state partitions\n")
    say(
        "| step | seconds | of these in batches | loading state | JVM, Python MiB | checkpoint MiB |"
    )
    say("|---|---|---|---|---|---|")
    for f in growing.figures():
        batch, load = ("-" if ms is None else f"{ms / 1000:.1f}" for ms in (f.batch_ms, f.load_ms))
        memory = " + ".join(f"{mib:,}" for mib in f.memory_mib)
        say(
            f"| {f.step} | {f.seconds:.0f} | {batch} | {load} | {memory} | {f.checkpoint_mib:,.1f} |"
        )
    say("\n| data | size | bytes per key or event |\n|---|---|---|")
    for line in sizes(growing.lake, keys):
        say(line)
    shutil.rmtree(growing.lake.root)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", nargs="+", type=int, default=KEYS)
    for keys in parser.parse_args().keys:
        measure(keys)


if __name__ == "__main__":
    main()
