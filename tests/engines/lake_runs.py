"""Bronze in a lake, drained by the live engine in any number of runs, or replayed."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.definition import KeyedFold
from include.fold.instants import micros_of
from include.lake.paths import Lake
from include.settings import Stream
from spark_jobs.engines.checkpointed_states import read_states
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain
from tests.bronze import Happened, StampedRow, append_commit
from tests.fold.oracle import Known

MICROSECOND = timedelta(microseconds=1)
START_US = 1_750_000_000_000_000
MS_US = 1_000


def arriving(
    seed: int, make: Callable[[random.Random, int], Any], commits: int, size: int
) -> list[list[Happened]]:
    """Ten milliseconds of events a commit, at whole milliseconds and a microsecond beside them.

    Some out of order, some too late for a delay of 5 ms.
    """
    rng = random.Random(seed)
    made = []
    for number in range(commits):
        start_us = START_US + number * 10 * MS_US
        times = [
            start_us + rng.randrange(-7, 11) * MS_US + rng.choice([-1, 0, 0, 0, 1])
            for _ in range(size)
        ]
        made.append([Happened(make(rng, time_us), time_us) for time_us in times])
    return made


def drained(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    fold: KeyedFold,
    stamped: Sequence[Sequence[StampedRow]],
    runs: int,
) -> None:
    """Append the commits, and drain them in so many runs, each with a fresh query."""
    for number, rows in enumerate(stamped, 1):
        append_commit(lake, stream.source, fold, rows)
        if number * runs // len(stamped) > (number - 1) * runs // len(stamped):
            with with_conf(spark, "spark.sql.shuffle.partitions", str(stream.state_partitions)):
                drain(SparkEngine(spark), lake, stream)


def plain(value: Any) -> Any:
    """A cell of a table, as the local engine has it: instants are integers there."""
    return micros_of(value) if hasattr(value, "tzinfo") else value


def table_of(lake: Lake, stream: Stream, fold: KeyedFold) -> Any:
    """The product table: append, how often each (row, emitted at); update, that by key."""
    names = [column.name for column in fold.output_columns]
    rows = DeltaTable(lake.table(stream.name)).to_pyarrow_table().to_pylist()
    emitted = [(tuple(plain(row[n]) for n in names), micros_of(row["emitted_at"])) for row in rows]
    if fold.output_mode == "append":
        return Counter(emitted)
    keys = [row[names.index(fold.key)] for row, _ in emitted]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, emitted, strict=True))


def known_in(rows: DataFrame, fold: KeyedFold) -> dict[Any, Known]:
    """States in rows of `state_rows_ddl(fold)`, which every engine has."""
    return {
        row["key"]: Known(state_in(row, fold), row["changed_at_us"], row["timeout_at_us"])
        for row in rows.collect()
    }


def state_in(row: Any, fold: KeyedFold) -> Any:
    if row["state"] is None:
        return None
    return fold.state(*(tuple(v) if isinstance(v, list) else v for v in row["state"]))


def stored(spark: SparkSession, lake: Lake, stream: Stream, fold: KeyedFold) -> dict[Any, Known]:
    return known_in(read_states(spark, lake.checkpoint(stream.name, 1), fold), fold)


def outputs_of(rows: DataFrame, fold: KeyedFold) -> Counter[Any]:
    """What a replay emitted, in rows of `output_ddl(fold)`: how often each (row, emitted at)."""
    kinds = {column.name: column.kind for column in fold.output_columns}
    cells = [F.unix_micros(n) if kind == "timestamp" else F.col(n) for n, kind in kinds.items()]
    collected = rows.select(*cells, "emitted_at_us").collect()
    return Counter((tuple(row[:-1]), row[-1]) for row in collected)


def admitted_live(bronze: DataFrame, fold: KeyedFold, delay_us: int) -> DataFrame:
    """The rows of bronze that the live engine folds or keeps waiting."""
    if fold.in_processing_time:
        return bronze
    in_time = F.unix_micros("event_time") > F.unix_micros("arrival_watermark") - F.lit(delay_us)
    return bronze.where(F.col("arrival_watermark").isNull() | in_time)


@contextmanager
def with_conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
