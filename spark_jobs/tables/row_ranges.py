"""Rows of a table between two instants, replaced in one commit."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from include.lake.lease import check_held
from include.lake.open_delta import refuse_older
from include.lake.range_change import RangeChange


def range_condition(at: str, date: str, from_us: int | None, until_us: int | None) -> str:
    """The rows with the instant `at` from one on and before another; `date` is their partition.

    With bounds of the partition, too: by the instants alone it would conflict with appends.
    """
    parts = []
    for bound_us, operator, of_date in ((from_us, ">=", ">="), (until_us, "<", "<=")):
        if bound_us is not None:
            bound = f"timestamp_micros({bound_us}L)"
            parts.append(f"{at} {operator} {bound} AND {date} {of_date} to_date({bound})")
    return " AND ".join(parts) or "true"


def replace_rows(
    new: DataFrame, path: str, condition: str, user_metadata: str | None = None
) -> RangeChange:
    """Make these the only rows of the table at `path` that meet `condition`, as all of them must.

    One commit; none when nothing would change. `user_metadata` is what it says of itself in the
    table's log.
    """
    refuse_older(path)
    old = new.sparkSession.read.format("delta").load(path).where(condition)
    change = _compare(old, new)
    if change.removed or change.added:
        check_held()
        writer = new.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        if user_metadata is not None:
            writer = writer.option("userMetadata", user_metadata)
        writer.save(path)
    return change


def _compare(old: DataFrame, new: DataFrame) -> RangeChange:
    """How two sets of rows differ, equal rows counted: in one pass over both.

    The columns are taken by position: any name of ours could be one of an output's fields.
    """
    values = [f"value_{position}" for position in range(len(old.columns))]
    tagged = [rows.toDF(*values).withColumn("sign", F.lit(s)) for rows, s in ((old, 1), (new, -1))]
    balance = (
        tagged[0]
        .union(tagged[1])
        .groupBy(*values)
        .agg(
            F.sum("sign").alias("net"),
            F.count_if(F.col("sign") > 0).alias("before"),
            F.count_if(F.col("sign") < 0).alias("after"),
        )
    )
    sums = (
        F.sum("before"),
        F.sum("after"),
        F.sum(F.greatest("net", F.lit(0))),
        F.sum(F.greatest(-F.col("net"), F.lit(0))),
    )
    row = balance.agg(*(F.coalesce(total, F.lit(0)) for total in sums)).collect()[0]
    return RangeChange(*(int(value) for value in row))
