"""The connector of another stream's table, the parent's: each row that it emits is an event.

Rows are taken by time, until the instant until which the table is complete: so the watermark moves as far.
Where the parent's record says that rows were written anew since, the table there is compared with bronze:
a row that only the table has is one of weight 1, a row that only bronze has one of weight -1. All are before
what was taken by then, and so late: a live query folds none, a replay what is left of all (`net`).

All is of one version of the table, and a commit to the ingest log has what it came to: so a step that is
repeated finds no difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import instant_of, micros_of
from include.fold.bucket import dates_within
from include.fold.definition import EMITTED_AT, EMITTED_DATE
from include.ingest.bronze_tables import late_fields, with_late_fields
from include.ingest.ingest_log import BRONZE, Entry, Ingestion, newest_batch, read_log
from include.ingest.parse_files import Counts, Parse, bronze_rows
from include.ingest.source_connector import SourceConnector
from include.ingest.splits import (
    Batch,
    Done,
    Lag,
    ReadSplit,
    Split,
)
from include.ingest.watermark import floor_to_ms, move_watermark
from include.lake.columns import arrow_type, instant_scalar
from include.lake.delta_log import CHECKED, commit_hash, unbroken
from include.lake.multiset import WEIGHT, difference
from include.lake.paths import Lake, files_of
from include.lake.table import Record, Table, stage
from include.settings import Source

BEGINNING_US = -(2**63)
EVENT_TIME = "event_time_us"
OF_BRONZE = ("event_time", "event_date")
Spans = Sequence[tuple[int, int]]  # instants [from, until), in order
ALL_ROWS = pc.scalar(True)


class Position(NamedTuple):
    """The part of the parent's table that bronze has, by the newest split of the ingest log."""

    until_us: int  # all rows before it, as the table had them ...
    number: int  # ... when this was the newest entry of its record
    origin: str  # see `Parent.origin`


def position_in(done: Done) -> Position | None:
    """The position; None before the first step."""
    return _position(done.splits[-1][1]) if done.splits else None


def _position(split: Split) -> Position:
    return Position(split.until, split.first, str(split.origin_id))


def splits_in_bronze(lake: Lake, source: str) -> list[Split]:
    """The splits of the batches that bronze has by now: the log is ahead of it after a kill.

    LakeError where bronze and the log do not fit.
    """
    logged, path = read_log(lake, source), lake.bronze(source)
    if logged is None or not lake.is_delta_table(path):
        return []
    lacks = logged.batches(BRONZE, newest_batch(Table.read(lake, path), logged))
    return [split for batch, split in logged.done().splits if not lacks or batch < lacks[0]]


def position_in_bronze(lake: Lake, source: str) -> Position | None:
    """The position by the batches that bronze has by now."""
    known = splits_in_bronze(lake, source)
    return _position(known[-1]) if known else None


@dataclass(frozen=True)
class Parent:
    """The parent's table at one version: its rows, and what its record says of them."""

    lake: Lake
    table: Table
    record: Record

    @property
    def complete_us(self) -> int:
        """The instant until which it is complete, as far as a watermark can say, which is in whole milliseconds."""
        return floor_to_ms(self.record["complete_until_us"] - 1) + 1

    @property
    def number(self) -> int:
        return max(int(entry["number"]) for entry in self.record["entries"])

    @property
    def origin(self) -> str:
        """The table and its history: another one may have entries of the same numbers."""
        return self._origin(self.table.version, self.record["lineage"])

    def _origin(self, version: int, lineage: str) -> str:
        commit = commit_hash(self.lake, self.table.path, version)
        return f"{self.table.delta.metadata().id} {lineage} {version} {commit or 'cleaned up'}"

    def written_since(self, known: Position) -> Spans:
        """Return the spans whose rows may differ from bronze's: by the record, as a rewind may delete none."""
        version = int(known.origin.split(" ")[2])
        if known.origin != self._origin(version, self.record["lineage"]):
            return [(BEGINNING_US, known.until_us)]
        new = [each for each in self.record["entries"] if each["number"] > known.number]
        return joined(
            (
                each.get("from_us", BEGINNING_US),
                # All behind a rebuild, or a live query that goes on from there, was emitted again.
                min(each["until_us"], known.until_us)
                if each["kind"] == "restate"
                else known.until_us,
            )
            for each in new
        )

    def rows(self, source: Source, spans: Spans) -> pa.Table:
        """The rows of these instants as events: the source's fields, and EVENT_TIME."""
        names = {field.name: field.landed for field in source.fields} | {EVENT_TIME: EMITTED_AT}
        return rows_within(self.table, source, names, (EMITTED_AT, EMITTED_DATE), spans)


def step_end_us(table: Table, by: str, new: tuple[int, int], most_bytes: int) -> int:
    """The instant until which one commit takes `new` rows: whole dates, of so many bytes at most if of several."""
    adds = pa.table(table.delta.get_add_actions(flatten=True))
    size, first = 0, date_of(new[0])
    by_date = adds.group_by(f"partition.{by}").aggregate([("size_bytes", "sum")])
    for date, found in sorted(zip(*(column.to_pylist() for column in by_date), strict=True)):
        if first is not None and date < first:
            continue
        size += found
        if size > most_bytes and size > found:
            midnight = datetime(date.year, date.month, date.day, tzinfo=UTC)
            return min(new[1], micros_of(midnight) + 1)
    return new[1]


def date_of(micros: int) -> Any:
    return None if micros == BEGINNING_US else instant_of(micros).date()


def joined(spans: Any) -> Spans:
    """The spans in order, those that meet as one; without empty ones."""
    found: list[tuple[int, int]] = []
    for from_us, until_us in sorted(span for span in spans if span[0] < span[1]):
        if found and from_us <= found[-1][1]:
            from_us, last_us = found.pop()
            until_us = max(until_us, last_us)
        found.append((from_us, until_us))
    return found


def parent_of(lake: Lake, stream: str) -> Parent | None:
    """The table of a stream; None while nothing of it is complete. LakeError where others have changed it."""
    path = lake.table(stream)
    if not lake.is_delta_table(path):
        return None
    table = Table.read(lake, path)
    record = table.record()
    if record is None or record.get("complete_until_us") is None:
        return None
    return Parent(lake, table, record)


def rows_within(
    table: Table,
    source: Source,
    names: dict[str, str],
    clock: tuple[str, str],
    spans: Spans,
    wanted: pc.Expression = ALL_ROWS,
) -> pa.Table:
    """Rows of a table within the spans, by its columns of time and date; `names`: columns by the names that they get."""
    kinds = {field.name: arrow_type(field.type) for field in source.fields}
    kinds |= {EVENT_TIME: pa.int64(), WEIGHT: pa.int32()}
    schema = pa.schema([(name, kinds[name]) for name in names])
    time, date = clock
    dataset = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path))
    late = late_fields(table.delta, names.values())
    read = {*names.values(), time}.union(*(field.columns() for field in late))
    read &= {*dataset.schema.names}
    parts = [schema.empty_table()]
    for from_us, until_us in spans:
        bound = None if from_us == BEGINNING_US else from_us
        # By dates alone: Delta cuts the instants of its statistics to milliseconds.
        dates = dates_within(pc.field(date), bound, until_us)
        with unbroken(table.path):
            options = {"filter": dates & wanted, "fragment_scan_options": CHECKED}
            rows = dataset.to_table(columns=sorted(read), **options)
        within = pc.less(rows[time], instant_scalar(until_us))
        if bound is not None:
            within = pc.and_(within, pc.greater_equal(rows[time], instant_scalar(bound)))
        rows = with_late_fields(rows.filter(within), late)
        none = pa.nulls(rows.num_rows)
        found = {n: rows[o] if o in rows.column_names else none for n, o in names.items()}
        parts.append(pa.table(found).cast(schema))
    return pa.concat_tables(parts)


class Step(NamedTuple):
    """The next commit: what has changed before the position, and what is taken behind it."""

    parent: Parent
    changed: Spans
    new: tuple[int, int]

    @property
    def split(self) -> Split:
        """The position that it comes to."""
        parent, name = self.parent, self.parent.record["stream"]
        return Split(name, None, parent.number, self.new[1], parent.origin)


class DerivedConnector(SourceConnector, Protocol):
    """Other tables of the lake, whose rows are taken as they are."""

    def reader(self, batch: Batch) -> ReadSplit:
        """None of its rows is parsed, and so none refused: there is none to read again."""
        return lambda split: iter(())

    def commit(self, ingestion: Ingestion, entry: Entry, events: pa.Table, is_beat: bool) -> Counts:
        """Commit what one step has taken; `is_beat`: where there are no events, with a heartbeat."""
        rows, after_us = events.num_rows, entry.after.watermark_us
        if not rows and is_beat:  # timeouts may be due
            events = pa.table({EVENT_TIME: [after_us], "source_file": pa.nulls(1)})
        staged = bronze_rows(self.source, events, entry.before, entry.after)
        files = stage(ingestion.bronze.path, staged, staged.schema, by="event_date")
        ingestion.commit(replace(entry, files={BRONZE: files} if files else {}))
        return Counts(batches=1, rows_bronze=rows)


@dataclass(frozen=True)
class StreamTableConnector(DerivedConnector):
    """The connector of the table of the stream `parent`."""

    lake: Lake
    source: Source
    parent: str

    def next_step(self, done: Done) -> Step | None:
        """The step that follows; None where there is nothing to take, or the parent is behind."""
        known, parent = position_in(done), parent_of(self.lake, self.parent)
        if parent is None or (known is not None and parent.complete_us < known.until_us):
            return None
        until_us = BEGINNING_US if known is None else known.until_us
        changed = () if known is None else parent.written_since(known)
        is_same = known is not None and (parent.complete_us, parent.number) == known[:2]
        if is_same and not changed:
            return None
        new = until_us, parent.complete_us
        end_us = step_end_us(parent.table, EMITTED_DATE, new, self.source.commit_bytes)
        return Step(parent, changed, (until_us, end_us))

    def lag(self, done: Done) -> Lag:
        """1 for a step to take."""
        step = self.next_step(done)
        return Lag(int(step is not None), is_little=True, held=None if step else self.held(done))

    def held(self, done: Done) -> str | None:
        """The reason why nothing can be taken of the parent yet; None: all is."""
        known, parent = position_in(done), parent_of(self.lake, self.parent)
        if parent is None:
            return f"nothing of {self.parent} is complete yet"
        if known is None or parent.complete_us >= known.until_us:
            return None
        return (
            f"{self.parent} was taken until {instant_of(known.until_us)}, and is complete until "
            f"{instant_of(parent.complete_us)} only: {self.source.name} waits until it has come as far again, "
            f"or begins anew by `./stateful ingest {self.source.name} --from-scratch --apply`"
        )

    def take_next(
        self, ingestion: Ingestion, parse: Parse | None = None, run_id: str | None = None
    ) -> Counts | None:
        """Take the next step, in one commit; None when there is none."""
        step = self.next_step(ingestion.logged.done())
        if step is None:
            return None
        before, now_us = ingestion.watermark(), micros_of(datetime.now(UTC))
        after = move_watermark(before, step.new[1] - 1, now_us)
        entry, events = (
            Entry(before, after, splits=[step.split]),
            self._events(ingestion.bronze, step),
        )
        has_moved = after.watermark_us != before.watermark_us
        return self.commit(ingestion, entry, events, is_beat=has_moved)

    def _events(self, bronze: Table, step: Step) -> pa.Table:
        """The rows to add to bronze, with their weights."""
        new = step.parent.rows(self.source, [step.new])
        events = new.append_column(WEIGHT, pa.repeat(pa.scalar(1, pa.int32()), new.num_rows))
        if step.changed:
            now, was = (
                step.parent.rows(self.source, step.changed),
                self._taken(bronze, step.changed),
            )
            changes = difference(now, was.drop_columns(WEIGHT), was[WEIGHT])
            events = pa.concat_tables([changes, events])
        name = pa.scalar(f"tables/{self.parent}")
        return events.append_column("source_file", pa.repeat(name, events.num_rows))

    def _taken(self, bronze: Table, spans: Spans) -> pa.Table:
        """The rows of bronze within the spans, as events with their weights, without heartbeats."""
        names = {field.name: field.name for field in self.source.fields}
        names |= {EVENT_TIME: "event_time", WEIGHT: WEIGHT}
        return rows_within(bronze, self.source, names, OF_BRONZE, spans, ~pc.field("is_heartbeat"))
