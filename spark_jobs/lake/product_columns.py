"""The documented columns of a stream's product table, whoever writes it."""

from collections.abc import Mapping

from spark_jobs.fold.definition import EMITTED_AT, EMITTED_DATE, KeyedFold
from spark_jobs.lake.delta_table import Column
from spark_jobs.lake.tables import EMITTED_AT_COMMENTS


def product_columns(fold: KeyedFold, comments: Mapping[str, str]) -> list[Column]:
    """The output's columns, then when it was emitted; `comments` documents the former."""
    columns = [Column(c.name, c.kind, comments[c.name]) for c in fold.output_columns]
    columns.append(Column(EMITTED_AT, "timestamp", EMITTED_AT_COMMENTS[fold.output_mode]))
    if fold.output_mode == "append":
        columns.append(Column(EMITTED_DATE, "date", "Partition: the date of emitted_at"))
    return columns
