"""Calls of a state function that were rejected: a Delta table per stream, `rejected/<stream>`.

It is made with its first row. Like the product it is a function of bronze and the stream's
code: live appends to it, a recompute or reseed replaces its interval.
"""

from collections import Counter
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from include.lake.paths import Lake
from include.lake.stream_result import (
    AT,
    AT_DATE,
    COLUMNS,
    MOST_KEYS,
    RangeChange,
    Summary,
    has_batch,
    next_record,
)
from spark_jobs.tables.arrow_tables import ArrowRejected, tell
from spark_jobs.tables.product import range_condition, replace_rows


class DeltaRejected:
    """`RejectedTable` of engines.engine, whose REJECTED_DDL rows have; those that were fetched, as
    Arrow, are written without Spark."""

    def __init__(self, session: SparkSession, lake: Lake, stream: str) -> None:
        self.path = lake.rejected(stream)
        self._session = session
        self._lake = lake
        self._stream = stream
        self._here = ArrowRejected(lake, stream)

    def append_once(self, rejected: DataFrame | pa.Table, app_id: str, batch_id: int) -> None:
        """Append what a batch rejected, unless `app_id` has written this batch before."""
        if isinstance(rejected, pa.Table):
            self._here.append_once(rejected, app_id, batch_id)
            return
        if not has_batch(self._lake, self._stream, app_id, batch_id):
            record = next_record(self._lake, self._stream, app=app_id, batch=batch_id)
            writer = _as_stored(rejected).write.format("delta").mode("append")
            writer.option("userMetadata", record).save(self.path)

    def summary(
        self, parts: Sequence[DataFrame | pa.Table], from_us: int | None = None
    ) -> Summary | None:
        """What the calls from one instant on come to; None for none."""
        if any(isinstance(part, pa.Table) for part in parts):
            return self._here.summary(parts)
        return _summary(_from(parts, from_us)) if parts else None

    def replace_range(
        self, parts: Sequence[DataFrame], from_us: int | None, until_us: int | None
    ) -> RangeChange:
        """Make those of `parts` the only rows from one instant on and before another."""
        record = next_record(self._lake, self._stream, is_made_anew=from_us is None)
        if parts:
            new = _as_stored(_from(parts, from_us))
        else:
            new = self._session.read.format("delta").load(self.path).where("false")
        within = range_condition(AT, AT_DATE, from_us, until_us=until_us)
        change = replace_rows(new, self.path, within, user_metadata=record)
        if change.removed == change.added == 0:
            tell(self.path, record)
        return change


def _from(parts: Sequence[DataFrame], from_us: int | None) -> DataFrame:
    rejected = reduce(DataFrame.union, parts)
    return rejected if from_us is None else rejected.where(F.col("at_us") >= from_us)


def _as_stored(rejected: DataFrame) -> DataFrame:
    rows = rejected.withColumn(AT, F.timestamp_micros("at_us")).withColumn(AT_DATE, F.to_date(AT))
    return rows.select([column.name for column in COLUMNS])


def _summary(rejected: DataFrame) -> Summary | None:
    is_event = F.col("cause") == "event"
    events, timeouts, first_us, last_us = rejected.agg(
        F.count_if(is_event), F.count_if(~is_event), F.min("at_us"), F.max("at_us")
    ).collect()[0]
    if first_us is None:
        return None
    most = rejected.groupBy("key").count().orderBy(F.desc("count"), "key").limit(MOST_KEYS)
    by_key = Counter(dict(map(tuple, most.collect())))
    return Summary(events, timeouts, first_us, last_us=last_us, by_key=by_key)


def row_checksum(rows: DataFrame, *names: str) -> Column:
    """An aggregate: the sum of the hashes of these columns of all rows; 0 without any."""
    kinds = dict(rows.dtypes)
    # Spark hashes no map. Ours have their keys in order, so their text does as well.
    hashed = [
        F.to_json(F.struct(F.col(f"`{n}`"))) if "map<" in kinds[n] else F.col(f"`{n}`")
        for n in names
    ]
    # A wide decimal: a sum of 64-bit hashes outgrows 64 bits.
    return F.coalesce(F.sum(F.xxhash64(*hashed).cast("decimal(38, 0)")), F.lit(0))
