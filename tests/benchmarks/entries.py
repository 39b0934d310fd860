"""The contenders in each table of the benchmark, and their files."""

from typing import NamedTuple

from tests.benchmarks.data import Shape
from tests.benchmarks.workloads import WORKLOADS

# What others are compared with: Spark as it is installed, and Spark with our classes for local files,
# which start no processes and take as much time from Scala's batch as from ours.
REFERENCES = {"installed Scala": "Scala on Spark as installed", "scala": "Scala with our files"}
# The first batches start Python and warm the JVM up; four are measured.
WARM_UP = 2
DENSE = [Shape(events=500_000, keys=100_000, active_keys=100_000)] * (WARM_UP + 4)
# Stock Python per-key APIs take minutes a batch at full size: a tenth, scaled.
TENTH = [Shape(events=50_000, keys=10_000, active_keys=10_000)] * (WARM_UP + 4)
SPARSE = [
    Shape(events=1_000_000, keys=1_000_000, active_keys=1_000_000),
    *[Shape(events=10_000, keys=1_000_000, active_keys=1_000)] * (WARM_UP + 3),
]
# Of other workloads than a count; a fifth of the events, for there are many contenders.
SHAPES = {
    "even": [Shape(events=100_000, keys=20_000, active_keys=20_000)] * (WARM_UP + 4),
    "zipf": [Shape(events=100_000, keys=20_000, active_keys=20_000, zipf=1.1)] * (WARM_UP + 4),
    "once": [Shape(events=100_000, keys=100_000, active_keys=100_000)] * (WARM_UP + 4),
    "four": [Shape(events=100_000, keys=25_000, active_keys=25_000)] * (WARM_UP + 4),
}


class Entry(NamedTuple):
    """A line of the table: who runs, on which files, and what its time is multiplied by."""

    label: str
    contender: str
    files: str
    buckets: int = 32
    scale: int = 1
    workload: str = "counts"
    is_whole: bool = False  # all batches together, the first ones too, in place of a steady one


def scala_entries(files: str, workload: str = "counts") -> tuple[Entry, ...]:
    function = "Scala `flatMapGroupsWithState`"
    return (
        Entry(f"{function}, Spark as installed", "installed Scala", files, workload=workload),
        Entry(f"{function}, with our classes for local files", "scala", files, workload=workload),
    )


OURS_DENSE = Entry("**plain Python function, live engine, 32 buckets**", "ours", "dense", 32)
DENSE_ENTRIES = (
    *scala_entries("dense"),
    OURS_DENSE,
    Entry("Spark's native `groupBy().count()` (no user code)", "native", "dense"),
    *(Entry(f"the same, {n} buckets", "ours", "dense", n) for n in (8, 256)),
)
STOCK_ENTRIES = (
    *scala_entries("dense"),
    OURS_DENSE,
    Entry("PySpark `transformWithState` (Row) by key", "transform_with_state", "tenth", scale=10),
    Entry("PySpark `applyInPandasWithState` by key", "apply_in_pandas", "tenth", scale=10),
)
# Of 3,000,000 events: live in six batches, and replayed.
REPLAY_ENTRIES = tuple(
    entry._replace(is_whole=True)
    for entry in (*scala_entries("dense"), Entry("replay, 32 buckets", "replay", "dense"))
)
SPARSE_ENTRIES = (
    *scala_entries("sparse"),
    *(
        Entry(f"live engine, {n} buckets", "ours", "sparse", n)
        for n in (8, 16, 32, 256, 1024, 4096)
    ),
)


def shape_entries(files: str, workload: str) -> tuple[Entry, ...]:
    """Scala's function, ours, and Spark's own where it has one."""
    entries = [
        *scala_entries(files, workload),
        Entry("live engine, 32 buckets", "ours", files, workload=workload),
    ]
    if WORKLOADS[workload].native is not None:
        entries.append(Entry("Spark's own, no user code", "native", files, workload=workload))
    return tuple(entries)


FILES = {"dense": DENSE, "tenth": TENTH, "sparse": SPARSE, **SHAPES}
TABLES = {
    "dense": DENSE_ENTRIES,
    "stock": STOCK_ENTRIES,
    "sparse": SPARSE_ENTRIES,
    "replay": REPLAY_ENTRIES,
} | {
    f"shapes/{files}/{workload}": shape_entries(files, workload)
    for files, workload in [
        *(("even", workload) for workload in WORKLOADS),
        *((files, "counts") for files in ("zipf", "once", "four")),
        ("zipf", "sessions"),
    ]
}
