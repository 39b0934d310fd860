"""Rows of bronze that Spark reads and counts, for a replay and for what a reseed brings along."""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.bronze_events import INSTANTS
from include.fold.definition import KeyedFold
from include.landing.late_fields import late_fields_of
from spark_jobs.engines.late_columns import fill_late_fields


def events_between(
    spark: SparkSession,
    bronze: str,
    fold: KeyedFold,
    ingested_at_us: int,
    from_us: int | None,
    until_us: int | None,
) -> DataFrame:
    """Rows of bronze, all that were ingested by then, from one instant on and before another.

    On the fold's clock; None is no bound. Clock rows are left out.
    """
    time = INSTANTS[fold.time_us]
    rows = spark.read.format("delta").load(bronze)
    rows = fill_late_fields(rows, late_fields_of(bronze, fold))
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
    return rows


def count_by_step(events: DataFrame, fold: KeyedFold, step_us: int) -> dict[int, int]:
    """The events of each step of time, counted from the epoch on the fold's clock."""
    step = F.floor(_at(INSTANTS[fold.time_us]) / step_us)
    return dict(map(tuple, events.groupBy(step).count().collect()))


def _at(name: str) -> Column:
    return F.unix_micros(name)


def _date(micros: int) -> Column:
    return F.to_date(F.timestamp_micros(F.lit(micros)))
