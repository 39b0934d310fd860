"""Appends that a repeated batch does not repeat.

Delta remembers the last `batch_id` of each `app_id` in the table's log, and skips an
append of that batch or an earlier one, without running its plan. So an `app_id` must
name one checkpoint: under the same name, a new checkpoint's batch 0 would be dropped.
Within `foreachBatch` give frames of the batch's own session, `df.sparkSession`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from include.lake.open_delta import refuse_older

TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def append_once(
    df: DataFrame,
    path: str,
    app_id: str,
    batch_id: int,
    user_metadata: str | None = None,
) -> None:
    """Append `df` to the Delta table at `path` in one commit, unless this batch did so before.

    `user_metadata` is what the commit says of itself in the table's log.
    """
    refuse_older(path)
    writer = df.write.format("delta").mode("append")
    writer = writer.option("txnAppId", app_id).option("txnVersion", str(batch_id))
    if user_metadata is not None:
        writer = writer.option("userMetadata", user_metadata)
    writer.save(path)


@contextmanager
def delta_transaction(
    session: SparkSession, app_id: str, batch_id: int, user_metadata: str
) -> Iterator[None]:
    """The same for a MERGE, which has no options: set on the session while the body runs.

    Only one write per table: a second one in the same batch would be skipped, too. Within
    `foreachBatch` the outer session's settings are ignored, silently: give `df.sparkSession`.
    """
    settings = {TXN_APP_ID: app_id, TXN_VERSION: str(batch_id), USER_METADATA: user_metadata}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
