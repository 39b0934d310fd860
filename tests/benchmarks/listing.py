"""How long measuring a checkpoint of many files takes, and how it grows with their number.

    .venv/bin/python -m tests.benchmarks.listing            # up to 100,000 files
    .venv/bin/python -m tests.benchmarks.listing --files 20000

Each line is the fastest of three measures of one checkpoint on the local disk, and within it
the bare listing, below which no measure can be. A small part of the files is made of
snapshots, which are read: about one in 500, as between two compactions.
"""

import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

from pyarrow import fs

from include.care.check_checkpoint import check_checkpoint
from include.checkpoint.measure_checkpoint import measure_checkpoint
from include.lake.paths import Lake
from include.registry import stream_named
from tests.checkpoint.spark_checkpoint import SparkCheckpoint

STREAM = stream_named("user_counts")
ROUNDS = 3
# A change log and its checksum, of each batch and partition; two for the batch's log files.
BATCHES = 250
FILES_A_PARTITION = 2 * BATCHES + 8


def write_checkpoint(lake: Lake, files: int) -> None:
    """About `files` files: BATCHES batches in as many state partitions as it takes."""
    folder = Path(lake.checkpoint(STREAM.name, 1))
    made = SparkCheckpoint(folder, partitions=max(files // FILES_A_PARTITION, 1))
    for batch in range(BATCHES):
        made.batch(snapshot=batch in (100, 200))


def fastest(run: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def bare_listing(lake: Lake) -> object:
    folder = lake.path_in_filesystem(lake.checkpoint(STREAM.name, 1))
    return lake.filesystem.get_file_info(fs.FileSelector(folder, recursive=True))


def line(files: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(folder)
        write_checkpoint(lake, files)
        size = measure_checkpoint(lake, STREAM.name, 1)
        listing = fastest(lambda: bare_listing(lake))
        measure = fastest(lambda: measure_checkpoint(lake, STREAM.name, 1))
        check = fastest(lambda: check_checkpoint(lake, STREAM))
        snapshots = sum(store.snapshots for store in size.stores)
    return (
        f"{size.files:>9,}  {len(size.stores):>10,}  {snapshots:>9,}  "
        f"{listing:>9.2f}  {measure:>9.2f}  {check:>9.2f}\n"
    )


def main() -> None:
    parser = ArgumentParser(description="Time the measuring of a checkpoint.")
    parser.add_argument("--files", type=int, default=100_000, help="of the largest checkpoint")
    largest = parser.parse_args().files
    sys.stdout.write("    files  partitions  snapshots  listing s  measure s    check s\n")
    for files in (largest // 10, largest // 3, largest):
        sys.stdout.write(line(files))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
