"""A running count per user by bytewax, with recovery on: two processes over the benchmark's files.

Run by a Python that has bytewax and pyarrow (`bench.py` makes one), with BENCH_FILES and
BENCH_CHECKPOINT. A file is an epoch, and so a snapshot: each process reads half of its rows.
Prints what contenders print; a batch's seconds are from its being read until the next is.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
from bytewax import operators
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir

PROCESSES = 2
ADDRESSES = [f"127.0.0.1:{port}" for port in (21_731, 21_732)]
FILES = sorted(Path(os.environ["BENCH_FILES"]).glob("*.parquet"))
FOLDER = Path(os.environ["BENCH_CHECKPOINT"])


class Half(StatefulSourcePartition[tuple[str, int], int]):
    """Every second row of each file, a file at a time."""

    def __init__(self, part: int, next_file: int) -> None:
        self.part, self.next_file, self.read_at = part, next_file, list[float]()

    def next_batch(self) -> Iterable[tuple[str, int]]:
        self.read_at.append(time.monotonic())
        if self.next_file == len(FILES):
            (FOLDER / f"times-{self.part}.json").write_text(json.dumps(self.read_at))
            raise StopIteration
        users = pq.read_table(FILES[self.next_file], columns=["user_id"])["user_id"]
        self.next_file += 1
        return [(user, 1) for user in users.to_pylist()[self.part :: PROCESSES]]

    def snapshot(self) -> int:
        return self.next_file


class Halves(FixedPartitionedSource[tuple[str, int], int]):
    def list_parts(self) -> list[str]:
        return [str(part) for part in range(PROCESSES)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Half:
        return Half(int(for_part), resume_state or 0)


class Last(StatelessSinkPartition[tuple[str, int]]):
    """The last count of each user, added up at the end."""

    def __init__(self, worker: int) -> None:
        self.worker, self.counts = worker, dict[str, int]()

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        self.counts.update(items)

    def close(self) -> None:
        (FOLDER / f"result-{self.worker}.json").write_text(json.dumps(sum(self.counts.values())))


class Lasts(DynamicSink[tuple[str, int]]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Last:
        return Last(worker_index)


def counted(known: int | None, one: int) -> tuple[int, int]:
    total = (known or 0) + one
    return total, total


def flow() -> Dataflow:
    made = Dataflow("counts")
    rows = operators.input("rows", made, Halves())
    operators.output("out", operators.stateful_map("count", rows, counted), Lasts())
    return made


def work(process: int) -> None:
    """One of the processes, to its end."""
    recovery = RecoveryConfig(str(FOLDER / "recovery"))
    options = {"workers_per_process": 1, "addresses": ADDRESSES, "process_id": process}
    cli_main(flow(), **options, epoch_interval=timedelta(0), recovery_config=recovery)


def main() -> None:
    if len(sys.argv) > 1:
        work(int(sys.argv[1]))
        return
    (FOLDER / "recovery").mkdir()
    init_db_dir(FOLDER / "recovery", PROCESSES)
    each = [subprocess.Popen([sys.executable, __file__, str(n)]) for n in range(PROCESSES)]
    codes = [process.wait() for process in each]
    if any(codes):
        raise SystemExit("a process of bytewax failed")
    read_at = json.loads((FOLDER / "times-0.json").read_text())
    seconds = [after - before for before, after in itertools.pairwise(read_at)]
    result = sum(json.loads((FOLDER / f"result-{n}.json").read_text()) for n in range(PROCESSES))
    told = {"seconds": seconds, "state_files_bytes": [], "result": result, "waiting": 0}
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main()
