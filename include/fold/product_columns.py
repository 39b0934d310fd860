"""The documented columns of a stream's product table, whoever writes it."""

from collections.abc import Mapping

from include.fold.definition import EMITTED_AT, EMITTED_DATE, KeyedFold
from include.lake.columns import Column

EMITTED_AT_COMMENTS = {
    "append": "When the event (or timeout) that emitted the row was, on the stream's clock, UTC",
    "update": "When the key last changed, on the stream's clock, UTC",
}


def product_columns(fold: KeyedFold, comments: Mapping[str, str]) -> list[Column]:
    """The output's columns, then when it was emitted; `comments` documents the former."""
    columns = [Column(c.name, c.kind, comments[c.name]) for c in fold.output_columns]
    columns.append(Column(EMITTED_AT, "timestamp", EMITTED_AT_COMMENTS[fold.output_mode]))
    if fold.output_mode == "append":
        columns.append(Column(EMITTED_DATE, "date", "Partition: the date of emitted_at"))
    return columns
