"""Rows of bronze between two instants, for a replay and for what a reseed brings along."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from include.fold.bucket import INSTANTS
from include.fold.definition import KeyedFold
from include.landing.bronze_tables import LateField, late_fields_of, rescued_values
from include.settings import RESCUED
from spark_jobs.engines.bronze_fields import check_types
from spark_jobs.engines.packed_files import Bounds, PlannedFiles, plan_files, workers_can_read
from spark_jobs.engines.packing import Admission, pack_events


def fill_late_fields(rows: DataFrame, late: Sequence[LateField]) -> DataFrame:
    """Rows of bronze, with those columns as the table has them today."""
    if not late:
        return rows
    return rows.withColumns({field.name: _filled(field) for field in late})


def _filled(field: LateField) -> Column:
    columns = [F.col(field.name)]
    if field.was is not None:
        columns.append(_filled(field.was).cast(field.type))
    # Asked only of rows that need it: parsing costs more than the rest of a row.
    needed = F.when(F.coalesce(*columns).isNull(), F.col(RESCUED))
    return F.coalesce(*columns, _reader(field)(needed))


def _reader(field: LateField) -> Callable[[Column], Column]:
    def read(texts: pa.Array) -> pa.Array:
        return rescued_values(field, texts)

    udf: Callable[[Column], Column] = arrow_udf(read, returnType=field.type)  # type: ignore[call-overload]
    return udf


class BronzeEvents(NamedTuple):
    """Rows of bronze as Spark reads them, and the files with them if workers open these themselves."""

    rows: DataFrame
    files: PlannedFiles | None = None

    def pack(self, fold: KeyedFold, ids: Sequence[int], until_us: int | None = None) -> DataFrame:
        """All of them, or those before an instant on the fold's clock, as packed rows (PACKED_DDL)."""
        if self.files is not None:
            check_types(dict(self.rows.dtypes), fold)
            return self.files.pack(self.rows.sparkSession, fold, ids, until_us)
        rows = self.rows
        if until_us is not None:
            rows = rows.where(_at(INSTANTS[fold.time_us]) < until_us)
        return pack_events(rows, fold, ids, admission=Admission())


def events_between(
    spark: SparkSession,
    bronze: str,
    fold: KeyedFold,
    ingested_at_us: int,
    from_us: int | None,
    until_us: int | None,
) -> BronzeEvents:
    """Rows of bronze, all that were ingested by then, from one instant on and before another.

    On the fold's clock; None is no bound. Clock rows are left out.
    """
    late, time = late_fields_of(bronze, fold), INSTANTS[fold.time_us]
    rows = spark.read.format("delta").load(bronze)
    rows = fill_late_fields(rows, late)
    rows = rows.where((_at("ingested_at") <= ingested_at_us) & ~F.col("is_clock"))
    if from_us is not None:
        rows = rows.where(_at(time) >= from_us)
    if until_us is not None:
        rows = rows.where(_at(time) < until_us)
    if time == "event_time":  # for Delta: only these partitions
        if from_us is not None:
            rows = rows.where(F.col("event_date") >= _date(from_us))
        if until_us is not None:
            rows = rows.where(F.col("event_date") <= _date(until_us))
    if not workers_can_read(bronze):
        return BronzeEvents(rows)
    bounds = Bounds(ingested_at_us, from_us, until_us)
    cores = spark.sparkContext.defaultParallelism
    return BronzeEvents(rows, plan_files(bronze, fold, bounds, late=late, cores=cores))


def count_by_step(events: BronzeEvents, fold: KeyedFold, step_us: int) -> dict[int, int]:
    """The events of each step of time, counted from the epoch on the fold's clock."""
    step = F.floor(_at(INSTANTS[fold.time_us]) / step_us)
    return dict(map(tuple, events.rows.groupBy(step).count().collect()))


def _at(name: str) -> Column:
    return F.unix_micros(name)


def _date(micros: int) -> Column:
    return F.to_date(F.timestamp_micros(F.lit(micros)))
