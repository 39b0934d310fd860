"""What commits of writers cost, on an idle machine: seconds, bytes, files, memory.

python -m tests.experiments.writer_prices spark   # batches in one job, the first in a fresh JVM
python -m tests.experiments.writer_prices arrow   # the same by delta-rs; --step append
python -m tests.experiments.writer_prices small   # a thousand rows, beside what 0.6 does
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from include.lake.commits import write_once
from include.lake.ops import append_ops, read_ops
from include.lake.paths import made_lake
from include.spark.submit import shell_environment
from tests.experiments.writers import ArrowWriter, SparkWriter, say
from tests.experiments.written_batches import (
    APP,
    DATE,
    REMOVED,
    START,
    batch_of,
    make_table,
    table_of,
)


def batches(folder: Path, by: str, given: argparse.Namespace) -> None:
    """Rows come as a frame of Spark, as those of a stream's batch do."""
    began = time.perf_counter()
    spark = SparkSession.builder.getOrCreate()
    task = f"{by} {given.step}, {given.changed:,} rows to {given.keys:,} in {given.files} files"
    say(f"{task}: session {time.perf_counter() - began:.1f} s")
    path, keys = str(folder / "table"), list(range(given.keys))
    make_table(path)
    random.Random(7).shuffle(keys)
    for n in range(given.files):
        rows = some_rows(keys[n :: given.files], 0).drop_columns([REMOVED, DATE])
        write_deltalake(path, rows, mode="append")
    writer: Any = ArrowWriter(path) if by == "arrow" else SparkWriter(path)
    for number in range(given.rounds):
        drawn = random.Random(number).sample(range(given.keys * 51 // 50), given.changed)
        pq.write_table(some_rows(drawn, 1), folder / f"{number}.parquet")
        frame: Any = spark.read.parquet(str(folder / f"{number}.parquet")).persist()
        frame.count()
        began, cpu = time.perf_counter(), cpu_seconds()
        rows = frame.toArrow().cast(some_rows([], 0).schema) if by == "arrow" else frame
        fetched = time.perf_counter()
        getattr(writer, given.step)(rows, batch_of(number))
        took = f"{fetched - began:.2f} s fetched, {time.perf_counter() - fetched:.2f} s written"
        took += f", {cpu_seconds() - cpu:.2f} of CPU"
        say(f"  {took}, {written_by_newest(path)}, {memory_told()}")
        frame.unpersist()


def some_rows(drawn: Sequence[int], number: int) -> pa.Table:
    """A row of each key drawn; of a batch one in twenty goes."""
    at = [START + timedelta(seconds=n % 86_400) for n in drawn]
    keys = [f"user-{n:09}" for n in drawn]
    return table_of(keys, number, at, [bool(number) and n % 20 == 0 for n in drawn])


def written_by_newest(path: str) -> str:
    """What the newest commit says of files."""
    log = Path(path, "_delta_log", f"{DeltaTable(path).version():020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    told = []
    for kind in ("add", "cdc", "remove"):
        sizes = [action[kind]["size"] for action in actions if kind in action]
        told.append(f"{kind} {len(sizes)} files {sum(sizes) / 1e6:.1f} MB")
    return ", ".join(told)


def cpu_seconds() -> float:
    """Of this process and its JVM."""
    used = [process.cpu_times() for process in (psutil.Process(), *psutil.Process().children())]
    return sum(times.user + times.system for times in used)


def memory_told() -> str:
    """The most that this process and its JVM have had."""
    peaks = []
    for process in (psutil.Process(), *psutil.Process().children()):
        status = Path(f"/proc/{process.pid}/status").read_text()
        if "VmHWM:" in status:
            peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
            peaks.append(f"{process.name()} {peak} MiB")
    return " ".join(peaks)


def small(folder: Path, rounds: int) -> None:
    """In turns; the first round, of a fresh process, is told apart."""
    lake, rows = made_lake(str(folder)), some_rows(range(1000), 1)
    for step in ("append", "merge"):
        took: dict[str, list[float]] = {"0.6, its table": [], "0.6": [], "1.0": []}
        for kind in ("0.6", "1.0"):
            make_table(f"{folder}/{step}-{kind}")
        for number in range(rounds + 1):
            for kind in ("0.6", "1.0")[:: 1 if number % 2 else -1]:
                path = f"{folder}/{step}-{kind}"
                began = time.perf_counter()
                if kind == "0.6":
                    write_as_today(path, step, rows, number)
                    took["0.6, its table"].append(time.perf_counter() - began)
                    of_stream = {"stream": step, "generation": 1}
                    read_ops(lake, "batches", of_stream)
                    row = {**of_stream, "batch_id": number, "run_id": "x", "committed_at": START}
                    append_ops(lake, "batches", [row], (step, number))
                else:
                    DeltaTable(path).history(1)  # the record, as a run begins
                    getattr(ArrowWriter(path), step)(rows, batch_of(number))
                took[kind].append(time.perf_counter() - began)
        for kind, seconds in took.items():
            first, *later = (1000 * s for s in seconds)
            spread = f"{min(later):.0f} - {max(later):.0f}"
            say(f"{step} {kind}: {statistics.median(later):.0f} ms ({spread}), first {first:.0f}")


def write_as_today(path: str, step: str, rows: pa.Table, number: int) -> None:
    """As `ArrowProduct` does: the table is opened for each batch, and the mark is short."""

    def commit_rows(table: DeltaTable, commit: CommitProperties) -> None:
        writer = ArrowWriter(path)
        writer.table = table
        if step == "append":
            writer.write(rows, commit, mode="append")
        else:
            writer.upsert(rows, commit)

    mark = json.dumps({"stateful": {"bronze": 7, "code": "0123456789abcdef", "batch": number}})
    write_once(path, APP, number, commit_rows, {"userMetadata": mark})


def main() -> None:
    how = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("what", choices=["spark", "arrow", "small"])
    sizes = {"rounds": 4, "keys": 1_000_000, "changed": 20_000, "files": 10}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--step", choices=["append", "merge"], default="merge")
    given = parser.parse_args()
    os.environ.setdefault("SPARK_MASTER", "local[2]")
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "small":
            return small(Path(folder), given.rounds)
        os.environ.update(shell_environment(folder))
        batches(Path(folder), given.what, given)


if __name__ == "__main__":
    main()
