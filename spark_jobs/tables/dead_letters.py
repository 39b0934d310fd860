"""The dead letters of a stream, calls that its function failed for: a Delta table, made with the first row.

Live batches append to it; a restatement or rebuild replaces its interval.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.product_table import PROPERTIES
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.dead_letters import AT, AT_DATE, COLUMNS, NUMBER
from include.lake.delta_log import create_if_absent
from include.lake.lease import check_held
from include.lake.ops import despite_others
from include.lake.paths import Lake
from include.lake.table import Table, stage
from spark_jobs.tables.product import Rows, range_condition

PLAIN = without_comments(documented(COLUMNS))


class Summary(NamedTuple):
    """The counts of some dead letters, and the first and last of them."""

    events: int
    timeouts: int
    first_us: int
    last_us: int


class DeadLetters:
    """The table of one stream. Without a session it writes Arrow tables alone."""

    def __init__(self, lake: Lake, stream: str, session: SparkSession | None = None) -> None:
        self.path = lake.dead_letters(stream)
        self._lake, self._stream, self._session = lake, stream, session

    def append(self, dead_letters: Rows) -> None:
        """Append those of a batch: before the product's rows, whose record names this commit."""

        def append() -> None:
            table = self._opened()
            table.record()
            record = {NUMBER: table.version + 1}
            if isinstance(dead_letters, DataFrame):
                writer = _stored_frame(dead_letters).write.format("delta").mode("append")
                writer.option("userMetadata", table.text(record)).save(self.path)
            else:
                table.commit(stage(self.path, stored([dead_letters]), PLAIN, AT_DATE), record)

        despite_others(append)

    def _opened(self) -> Table:
        """Open the table, which is made where it is not there yet."""
        comment = f"Events and timeouts that the state function of {self._stream} failed for"
        create_if_absent(self.path, COLUMNS, comment, PROPERTIES, [AT_DATE])
        return Table.open(self._lake, self.path)

    def summary(self, parts: Sequence[Rows], from_us: int | None = None) -> Summary | None:
        """Return the summary of the calls from one instant on (None: of all); None for none."""
        if frames := [part for part in parts if isinstance(part, DataFrame)]:
            return _summary_frame(_from(frames, from_us))
        calls = [c for part in parts if isinstance(part, pa.Table) for c in part.to_pylist()]
        calls = [call for call in calls if from_us is None or call["at_us"] >= from_us]
        if not calls:
            return None
        events = sum(call["cause"] == "event" for call in calls)
        times_us = [call["at_us"] for call in calls]
        return Summary(events, len(calls) - events, min(times_us), max(times_us))

    def replace_range(
        self, parts: Sequence[DataFrame], from_us: int | None, until_us: int | None
    ) -> None:
        """Replace the rows from one instant on and before another by those of `parts`, in one commit.

        None: no bound. No part may have calls at `until_us` or later.
        """
        table = self._opened()
        if from_us is not None:  # or all is replaced, whatever others have changed
            table.record()
        record = {NUMBER: table.version + 1}
        rows = self._none() if not parts else _stored_frame(_from(parts, from_us))
        check_held()
        within = range_condition(AT, AT_DATE, from_us, until_us=until_us)
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", within)
        writer.option("userMetadata", table.text(record)).save(self.path)
        table.reopen()
        if table.version < record[NUMBER]:  # nothing for nothing, of which Spark makes no commit
            table.commit([], record)

    def _none(self) -> DataFrame:
        assert self._session is not None  # or nothing was replayed
        return self._session.createDataFrame(PLAIN.empty_table())


def stored(parts: Sequence[pa.Table]) -> pa.Table:
    """Return rows as the table has them."""
    return pa.concat_tables([PLAIN.empty_table(), *map(_as_stored, parts)])


def _as_stored(dead_letters: pa.Table) -> pa.Table:
    at = dead_letters["at_us"].cast(INSTANT)
    rows = dead_letters.append_column(AT, at).append_column(AT_DATE, at.cast(pa.date32()))
    return rows.select(PLAIN.names).cast(PLAIN)


def _from(parts: Sequence[DataFrame], from_us: int | None) -> DataFrame:
    dead_letters = reduce(DataFrame.union, parts)
    return dead_letters if from_us is None else dead_letters.where(F.col("at_us") >= from_us)


def _stored_frame(dead_letters: DataFrame) -> DataFrame:
    rows = dead_letters.withColumn(AT, F.timestamp_micros("at_us"))
    return rows.withColumn(AT_DATE, F.to_date(AT)).select(PLAIN.names)


def _summary_frame(dead_letters: DataFrame) -> Summary | None:
    is_event = F.col("cause") == "event"
    events, timeouts, first_us, last_us = dead_letters.agg(
        F.count_if(is_event), F.count_if(~is_event), F.min("at_us"), F.max("at_us")
    ).collect()[0]
    return None if first_us is None else Summary(events, timeouts, first_us, last_us)
