"""A batch that was parsed: what it comes to, and how its rows get into bronze and quarantine."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from include.lake.columns import INSTANT, documented, without_comments
from include.lake.paths import Lake
from include.lake.table import Staged, stage
from include.landing.batch import Batch
from include.landing.bronze_commits import bronze_rows
from include.landing.bronze_tables import bronze_columns, quarantine_columns
from include.landing.connector import origin_columns
from include.landing.group_clock import Newest, group_column, newest_of_groups
from include.landing.ingest_log import Clock
from include.landing.origin import connector_of
from include.landing.parse_files import ACCEPTED, FILE, REFUSED, parse_here, value_column
from include.landing.quarantined_rows import Refusals
from include.settings import RESCUED, Source


class Summary(NamedTuple):
    """A parsed batch in numbers: of files, of rows as the files count them, and of outcomes."""

    files: int
    rows_in_files: int
    accepted: int
    refused: int
    skipped: int = 0  # beside these, by declaration
    rescued: int = 0  # those that had more than the source's fields
    unknown: Mapping[str, int] = MappingProxyType({})  # of each such field, its rows


def add_counts(texts: Iterable[str | None]) -> Mapping[str, int]:
    """Of each field that no source knows its rows, of what `Rescue.fields` says of files."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(json.loads(text or "{}"))
    return counts


def _count_rescued(accepted: pa.Table) -> int:
    return int(accepted.num_rows - accepted[RESCUED].null_count)


class Parsed(Protocol):
    """The outcomes of a batch's rows, wherever they are, and how they get into the tables."""

    def summary(self) -> Summary:
        """What they are, counted."""

    def refusals(self) -> list[Refusals]:
        """The refused rows by reason."""

    def newest_file(self) -> tuple[str, int | None]:
        """The file with the newest event, and the newest time in any other; None without another."""

    def newest(self) -> tuple[int, Newest | None]:
        """The newest time of an event, and of each group of a source that has some."""

    def stage_accepted(self, before: Clock, after: Clock) -> list[Staged]:
        """Write the events as files of bronze, of a commit that takes its clock from `before` to `after`."""

    def stage_refused(self) -> list[Staged]:
        """Write the refused rows as files of quarantine."""


Parse = Callable[[Lake, Source, Batch], AbstractContextManager[Parsed]]


def bronze_schema(source: Source) -> pa.Schema:
    """The columns of a file of bronze."""
    return without_comments(documented(bronze_columns(source)))


def quarantine_schema(source: Source) -> pa.Schema:
    """The columns of a file of quarantine."""
    return without_comments(documented(quarantine_columns(source)))


class ParsedHere:
    """Outcomes as an Arrow table, written by delta-rs."""

    def __init__(self, lake: Lake, source: Source, batch: Batch, outcomes: pa.Table) -> None:
        self._lake = lake
        self._source = source
        self._batch = batch
        self._outcomes = outcomes
        self._accepted = outcomes.filter(pc.equal(outcomes["kind"], ACCEPTED))
        self._refused = outcomes.filter(pc.equal(outcomes["kind"], REFUSED))

    def summary(self) -> Summary:
        files = self._outcomes.filter(pc.equal(self._outcomes["kind"], FILE))
        return Summary(
            files.num_rows,
            pc.sum(files["rows_in_file"]).as_py() or 0,
            self._accepted.num_rows,
            refused=self._refused.num_rows,
            skipped=pc.sum(files["rows_skipped"]).as_py() or 0,
            rescued=_count_rescued(self._accepted),
            unknown=add_counts(files[RESCUED].to_pylist()),
        )

    def refusals(self) -> list[Refusals]:
        by_code = self._refused.group_by("reason_code")
        found = by_code.aggregate([([], "count_all"), ("source_file", "min")])
        return [Refusals(*row.values()) for row in found.to_pylist()]

    def newest_file(self) -> tuple[str, int | None]:
        times = self._accepted.group_by("source_file").aggregate([("event_time_us", "max")])
        newest = times.sort_by([("event_time_us_max", "descending"), ("source_file", "ascending")])
        rows = newest.slice(0, 2).to_pylist()
        return rows[0]["source_file"], rows[1]["event_time_us_max"] if len(rows) > 1 else None

    def newest(self) -> tuple[int, Newest | None]:
        return pc.max(self._accepted["event_time_us"]).as_py(), self._newest_of_groups()

    def stage_accepted(self, before: Clock, after: Clock) -> list[Staged]:
        rows = bronze_rows(self._source, self._events(), before, after)
        schema = bronze_schema(self._source)
        return stage(self._lake.bronze(self._source.name), rows, schema, by="event_date")

    def _newest_of_groups(self) -> Newest | None:
        if self._source.watermark_per is None:
            return None
        column = group_column(self._source, value_column)
        found = self._accepted.group_by(column).aggregate([("event_time_us", "max")])
        values, times = (found[name].to_pylist() for name in (column, "event_time_us_max"))
        return newest_of_groups(self._source, zip(values, times, strict=True))

    def _events(self) -> pa.Table:
        names = {value_column(field): field.name for field in self._source.fields}
        added = (column.name for column in origin_columns(self._source))
        columns = [*names, "event_time_us", "source_file", RESCUED, *added]
        events = self._accepted.select(columns)
        return events.rename_columns([names.get(name, name) for name in columns])

    def stage_refused(self) -> list[Staged]:
        at = pa.repeat(pa.scalar(self._batch.ingested_at_us, pa.int64()), self._refused.num_rows)
        rows = self._refused.append_column("ingested_at", at.cast(INSTANT))
        schema = quarantine_schema(self._source)
        for field in schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return stage(self._lake.quarantine(self._source.name), rows, schema)


@contextmanager
def parsed_here(lake: Lake, source: Source, batch: Batch) -> Iterator[ParsedHere]:
    """The batch, parsed by processes of this machine. In memory, as a batch is `commit_bytes`."""
    read = connector_of(lake, source).reader(batch)
    outcomes = parse_here(source, read, batch.splits)
    yield ParsedHere(lake, source, batch, outcomes)
