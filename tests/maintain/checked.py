"""A check's findings, and what happens to a checkpoint before it, for tests."""

import shutil
from collections.abc import Callable

from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.maintain.check_checkpoint import CheckResult
from include.registry import stream_named
from tests.stream.entries import entry, record
from tests.stream.spark_checkpoint import SparkCheckpoint, remove, write

STREAM = stream_named("user_counts")


def found(result: CheckResult) -> dict[str, str]:
    return {finding.finding: finding.severity for finding in result.findings}


def detail(result: CheckResult, finding: str) -> str:
    (one,) = [one for one in result.findings if one.finding == finding]
    return one.detail


def recorded_batch(lake: Lake, batch: int, **columns: object) -> None:
    known = {"stream": STREAM.name, "generation": 1, "batch_id": batch} | columns
    append_ops(lake, "batches", [known])
    live = entry(1, "live", None, None, batch_id=batch, bronze_id=None)
    totals = {"rows_pending": known.get("rows_pending", 0)}
    record(lake, live, STREAM.name, totals=totals)


def in_root(name: str, content: bytes = b"x") -> Callable[[SparkCheckpoint], None]:
    return lambda made: write(made.root / name, content)


def in_state(name: str) -> Callable[[SparkCheckpoint], None]:
    return lambda made: write(made.stores[1].folder / name, b"x")


def without(name: str) -> Callable[[SparkCheckpoint], None]:
    def lose(made: SparkCheckpoint) -> None:
        path = made.root / name
        shutil.rmtree(path) if path.is_dir() else remove(path)

    return lose


def emptied(name: str) -> Callable[[SparkCheckpoint], None]:
    return lambda made: write(made.root / name, b"")


def checksum_alone(name: str) -> Callable[[SparkCheckpoint], None]:
    def leave(made: SparkCheckpoint) -> None:
        write(made.root / name, b"x")
        (made.root / name).unlink()

    return leave


def snapshots_cut_off(*versions: int) -> Callable[[SparkCheckpoint], None]:
    def cut(made: SparkCheckpoint) -> None:
        for version in versions:
            path = made.stores[0].snapshot(version)
            path.write_bytes(path.read_bytes()[:50])

    return cut
