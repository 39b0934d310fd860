"""Bronze in a lake, drained by the live engine in any number of runs, or replayed."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from include.fold.admission import NEVER_US, micros_of
from include.fold.arrow_values import column_values
from include.fold.definition import KeyedFold
from include.fold.testing.cases import key_of_row
from include.lake.columns import arrow_type
from include.lake.paths import Lake
from include.settings import Stream
from spark_jobs.engines.packed_files import BronzeEvents, events_between
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_rows import read_states, states_from_rows
from spark_jobs.run_stream import drain
from tests.bronze import Happened, StampedRow, append_commit
from tests.fold.arrivals import as_known
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


def table_of(lake: Lake, stream: Stream, fold: KeyedFold) -> Any:
    """The product table: append, how often each (row, emitted at); update, that by key."""
    rows = DeltaTable(lake.table(stream.name)).to_pyarrow_table()
    at_us = [micros_of(at) for at in rows["emitted_at"].to_pylist()]
    emitted = list(zip(row_values(rows, fold), at_us, strict=True))
    if fold.output_mode == "append":
        return Counter(emitted)
    keys = [key_of_row(fold, row) for row, _ in emitted]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, emitted, strict=True))


def known_in(rows: DataFrame, fold: KeyedFold) -> dict[Any, Known]:
    """States in rows of `state_rows_ddl(fold)`, which every engine has."""
    return {known.key: as_known(known) for known in states_from_rows(fold, rows.toArrow())}


def stored(spark: SparkSession, lake: Lake, stream: Stream, fold: KeyedFold) -> dict[Any, Known]:
    return known_in(read_states(spark, lake.checkpoint(stream.name, 1), fold), fold)


def outputs_of(rows: DataFrame, fold: KeyedFold) -> Counter[Any]:
    """Count each (row, emitted at) of a replay, in rows of `output_ddl(fold)`."""
    collected = rows.toArrow()
    emitted = zip(row_values(collected, fold), collected["emitted_at_us"].to_pylist(), strict=True)
    return Counter(emitted)


def row_values(rows: pa.Table, fold: KeyedFold) -> list[tuple[Any, ...]]:
    """The output's columns of each row, as the fold has emitted them."""
    stored = {c.name: rows[c.name].cast(arrow_type(c.kind)) for c in fold.output_columns}
    return list(zip(*(column_values(c, stored[c.name]) for c in fold.output_columns), strict=True))


def admitted_live(
    spark: SparkSession, lake: Lake, stream: Stream, fold: KeyedFold, from_us: int | None = None
) -> BronzeEvents:
    """The events that the live engine folds or keeps waiting, from one instant on, in a bronze of their own."""
    admitted = lake.bronze("admitted")
    if not lake.is_delta_table(admitted):
        rows = DeltaTable(lake.bronze(stream.source)).to_pyarrow_table()
        times_us, arrivals_us = (
            rows[name].cast(pa.int64()) for name in ("event_time", "watermark_before")
        )
        late = pc.less_equal(
            times_us, pc.subtract(arrivals_us, stream.watermark_delay // MICROSECOND)
        )
        if not fold.in_processing_time:
            rows = rows.filter(pc.invert(late.fill_null(False)))
        write_deltalake(admitted, rows)
    return events_between(spark, admitted, fold, Bounds(NEVER_US, from_us))


@contextmanager
def with_conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
