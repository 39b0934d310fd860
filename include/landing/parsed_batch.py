"""A batch that was parsed: what it comes to, and how its rows get into bronze and quarantine."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from include.lake.columns import INSTANT, documented, without_comments
from include.lake.commits import is_written, write_once
from include.lake.delta_log import delta_table
from include.lake.ops import despite_others, with_all_columns
from include.lake.paths import Lake
from include.landing.arrivals import origin_columns
from include.landing.batch import Batch
from include.landing.bronze_commits import append_next, bronze_rows, clock_after, read_clock
from include.landing.bronze_tables import add_rescued, quarantine_columns
from include.landing.clock import Clock
from include.landing.group_clock import Newest, group_column, newest_of_groups
from include.landing.origin import reader_of_parts
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
    return int(accepted.num_rows - accepted["rescued"].null_count)


class Once(NamedTuple):
    """The name and the number under which a commit is made."""

    app_id: str
    number: int


class Parsed(Protocol):
    """The outcomes of a batch's rows, wherever they are, and how they get into the tables."""

    def summary(self) -> Summary:
        """What they are, counted."""

    def refusals(self) -> list[Refusals]:
        """The refused rows by reason."""

    def newest_file(self) -> tuple[str, int | None]:
        """The file with the newest event, and the newest time in any other; None without another."""

    def append_accepted(self, once: Once) -> tuple[Clock, Clock] | None:
        """Commit the events to bronze, unless that was done before: its clock before and after, or
        None if it is known that nothing was committed."""

    def append_refused(self, once: Once, ingested_at_us: int) -> None:
        """Commit the refused rows to quarantine, unless that was done before."""


# The batch, and the bytes of each of its files.
Parse = Callable[[Lake, Source, Batch, Mapping[str, int]], AbstractContextManager[Parsed]]


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
            unknown=add_counts(files["rescued"].to_pylist()),
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

    def append_accepted(self, once: Once) -> tuple[Clock, Clock] | None:
        newest_us = pc.max(self._accepted["event_time_us"]).as_py()
        if has_rescued := _count_rescued(self._accepted) > 0:
            add_rescued(self._lake, self._source)

        def append() -> tuple[Clock, Clock] | None:
            table = delta_table(self._lake.bronze(self._source.name))  # before its clock is read
            if is_written(table, *once):
                return None
            before = read_clock(self._lake, self._source)
            at_us = self._batch.ingested_at_us
            after = clock_after(before, newest_us, at_us, self._newest_of_groups())
            rows = bronze_rows(self._source, self._events(), before, after)
            if has_rescued:
                rows = rows.append_column(RESCUED, self._accepted["rescued"])
            append_next(table, rows, after, {"batch_id": once.number}, once)
            return before, after

        return despite_others(append)

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
        columns = [*names, "event_time_us", "source_file", *added]
        events = self._accepted.select(columns)
        return events.rename_columns([names.get(name, name) for name in columns])

    def append_refused(self, once: Once, ingested_at_us: int) -> None:
        at = pa.repeat(pa.scalar(ingested_at_us, pa.int64()), self._refused.num_rows)
        rows = self._refused.append_column("ingested_at", at.cast(INSTANT))
        schema = without_comments(documented(quarantine_columns(self._source)))
        for field in schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        stored = rows.select(schema.names).cast(schema)

        def write(table: DeltaTable, commit: CommitProperties) -> None:
            write_deltalake(
                table, with_all_columns(stored, table), mode="append", commit_properties=commit
            )

        write_once(self._lake.quarantine(self._source.name), *once, write)


@contextmanager
def parsed_here(
    lake: Lake, source: Source, batch: Batch, sizes: Mapping[str, int]
) -> Iterator[ParsedHere]:
    """The batch, parsed by processes of this machine. In memory, as a batch is `commit_bytes`."""
    outcomes = parse_here(source, reader_of_parts(lake, source, batch), sizes)
    yield ParsedHere(lake, source, batch, outcomes)
