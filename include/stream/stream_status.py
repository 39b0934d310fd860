"""The status of a stream's table: where it is right by today's file, instant by instant, and if not, why.

By the record and bronze alone. A table is right at t when an entry of the record covers t, all code
that its state went through is today's (or was mapped), and it has every row of bronze at or before
t. It is not right where nothing is recorded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cache, cached_property, partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.catalogue import FINDINGS
from include.fold.admission import instant_of, micros_of
from include.fold.group_state import GroupStateTimeout
from include.ingest.amendments import Amendment
from include.ingest.ingest_log import how_bronze_changed
from include.ingest.merged import MergedConnector
from include.ingest.stream_table import parent_of, position_in_bronze
from include.lake.delta_log import open_table
from include.lake.errors import how_to_mend
from include.lake.generations import GenerationRow
from include.lake.ops import Finding
from include.lake.paths import Lake
from include.registry import inputs_first, source_named, stream_named
from include.settings import Stream
from include.stream.bronze import BronzeFiles, known, read_files
from include.stream.manifest import StreamIdentity, mapped_savepoint
from include.stream.open_stream import OpenStream, open_stream
from include.stream.record import BEGINNING_US, RecordEntry, Segment, newest_own, segments_of
from include.text_table import counted, first_names

COLUMNS = ["event_time", "watermark_before", "ingested_at", "is_heartbeat"]
GROUP = ["event_date", "ingested_at"]
ANY_DELAY_US = 10**6 * 86_400 * 365 * 100  # no row is further ahead of the watermark
MEASURES = [("event_time", "count"), ("event_time", "min"), ("event_time", "max")]


@dataclass(frozen=True)
class LateGroup:
    """The late rows of one commit with one event date, from `first_us` to `last_us`."""

    date: date
    ingested_at_us: int
    rows: int
    first_us: int
    last_us: int


def late_groups(
    lake: Lake, source: str, delay_us: int, since_us: int | None, after_us: int | None
) -> list[LateGroup]:
    """The groups of bronze's late rows under `delay_us`, from `since_us` on, ingested after `after_us`."""
    path = lake.bronze(source)
    if not lake.is_delta_table(path):
        return []
    table = open_table(path)
    paths = _paths(table, delay_us, since_us, after_us=after_us)
    wanted = _is_late(delay_us, since_us, after_us)
    batches = read_files(table, paths, COLUMNS, wanted)
    parts = [_grouped(pa.Table.from_batches([batch])) for batch in batches]
    if not parts:
        return []
    found = pa.concat_tables(parts).group_by(GROUP)
    whole = found.aggregate([("rows", "sum"), ("first", "min"), ("last", "max")]).to_pylist()
    return _in_order(
        LateGroup(day, micros_of(at), rows, micros_of(first), micros_of(last))
        for day, at, rows, first, last in (row.values() for row in whole)
    )


def _in_order(groups: Iterable[LateGroup]) -> list[LateGroup]:
    return sorted(groups, key=lambda group: (group.ingested_at_us, group.date))


def _paths(
    table: DeltaTable, delay_us: int, since_us: int | None, after_us: int | None
) -> list[str]:
    files = BronzeFiles(table)
    first, last = files.span("event_time")
    none = pc.greater(first, pc.subtract(files.latest("watermark_before"), delay_us))
    if since_us is not None:
        none = pc.or_kleene(none, pc.less(last, since_us))
    if after_us is not None:
        none = pc.or_kleene(none, pc.less_equal(files.latest("ingested_at"), after_us))
    return files.paths_but(known(none))


def _is_late(delay_us: int, since_us: int | None, after_us: int | None) -> pc.Expression:
    delay = pa.scalar(delay_us, pa.duration("us"))
    late = pc.field("event_time") <= pc.field("watermark_before") - delay
    if since_us is not None:
        late &= pc.field("event_time") >= pa.scalar(instant_of(since_us))
    if after_us is not None:
        late &= pc.field("ingested_at") > pa.scalar(instant_of(after_us))
    return late & ~pc.field("is_heartbeat")


def _grouped(rows: pa.Table) -> pa.Table:
    # event_date is a partition, and so no column of the files.
    days = pc.cast(pc.cast(rows["event_time"], pa.timestamp("us")), pa.date32(), safe=False)
    rows = rows.append_column("event_date", days)
    found = rows.group_by(GROUP).aggregate(MEASURES)
    names = [f"event_time_{function}" for _, function in MEASURES]
    return found.select([*GROUP, *names]).rename_columns([*GROUP, "rows", "first", "last"])


ReadLate = Callable[[Lake, str, int, int | None, int | None], list[LateGroup]]
Reason = Literal["late rows", "other code", "not recorded", "cut off", "upstream"]


@dataclass(frozen=True)
class Span:
    """Instants `[from_us, until_us)` of a table; BEGINNING_US is the beginning."""

    from_us: int
    until_us: int
    reason: Reason | None  # None: it is right there
    missing: tuple[LateGroup, ...] = ()  # the rows of bronze that it does not have


@dataclass(frozen=True)
class TableStatus:
    """The verdict on a table before `until_us` (None: nothing of it is complete)."""

    until_us: int | None
    spans: tuple[Span, ...]  # in order, without gaps, from the beginning to `until_us`
    live: Span | None  # live's state at its newest instant; None before there is one

    @cached_property
    def wrong(self) -> tuple[Span, ...]:
        """The spans where the table is not right."""
        return tuple(span for span in self.spans if span.reason is not None)

    @property
    def right_until_us(self) -> int:
        """The instant until which the table is right from the beginning; BEGINNING_US: nowhere."""
        until_us = BEGINNING_US if self.until_us is None else self.until_us
        return self.wrong[0].from_us if self.wrong else until_us

    @property
    def live_is_right(self) -> bool:
        """True if live's state has every row, by today's code."""
        return self.live is None or self.live.reason is None


def judge(
    lake: Lake,
    entries: Sequence[RecordEntry],
    identity: StreamIdentity,
    set_back: Amendment | None = None,
    read_late: ReadLate | None = None,
) -> TableStatus:
    """Judge a table whose record has these entries by today's `identity`.

    `set_back`: a source watermark set back that the table's state does not know of.
    """
    newest = newest_own(entries)
    if newest is None:
        return TableStatus(None, (), None)
    accepted = _accepted(entries, identity.code)
    reset_us = None if set_back is None else set_back.amended
    judged = _Judge(lake, identity, accepted, reset_us, read_late or late_groups)
    spans: list[Span] = []
    at_us = BEGINNING_US
    for segment in segments_of(entries):
        spans += _unrecorded(at_us, segment.from_us)
        spans += judged.spans(segment)
        at_us = segment.until_us
    live_us = BEGINNING_US if newest.until_us is None else newest.until_us
    until_us = max(at_us, live_us)
    spans += _unrecorded(at_us, until_us)
    known_until_us = None if until_us == BEGINNING_US else until_us
    return TableStatus(known_until_us, tuple(_joined(spans)), judged.span(newest, live_us, live_us))


def _unrecorded(from_us: int, until_us: int) -> list[Span]:
    return [Span(from_us, until_us, "not recorded")] if from_us < until_us else []


def _accepted(entries: Sequence[RecordEntry], code: str) -> set[str]:
    """The codes whose states count as today's: today's code, and those whose states it has mapped."""
    accepted = {code}
    for entry in sorted(entries, key=lambda entry: entry.number, reverse=True):
        if entry.mapped_from is not None and accepted & set(entry.codes):
            accepted.add(entry.mapped_from)
    return accepted


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Join neighbouring spans with the same reason and rows."""
    joined: list[Span] = []
    for span in spans:
        if joined and (joined[-1].reason, joined[-1].missing) == (span.reason, span.missing):
            span = Span(joined.pop().from_us, span.until_us, span.reason, missing=span.missing)
        joined.append(span)
    return joined


@dataclass(frozen=True)
class _Judge:
    """Judges entries, and reads bronze's late rows once for each delay that they name."""

    lake: Lake
    identity: StreamIdentity
    accepted: set[str]  # codes
    reset_us: int | None
    read_late: ReadLate
    groups: dict[int, list[LateGroup]] = field(default_factory=dict)  # by delay

    def spans(self, segment: Segment) -> list[Span]:
        """The spans of a segment: right up to some instant, and wrong from there on."""
        whole = self.span(segment.entry, segment.from_us, segment.until_us)
        # An event at t emits at t, so the table is wrong from the first missing row on. An update
        # table, which shows one state, is wrong as a whole.
        if not whole.missing or self.identity.output_mode == "update":
            return [whole]
        first_us = max(whole.from_us, min(group.first_us for group in whole.missing))
        spans = [Span(whole.from_us, first_us, None), replace(whole, from_us=first_us)]
        return [span for span in spans if span.from_us < span.until_us]

    def span(self, entry: RecordEntry, from_us: int, until_us: int) -> Span:
        """The verdict on the rows of an entry there; without a length, on its state at that instant."""
        if not set(entry.codes) <= self.accepted:
            return Span(from_us, until_us, "other code")
        missing = self._missing(entry, until_us)
        return Span(from_us, until_us, "late rows" if missing else None, missing)

    def _missing(self, entry: RecordEntry, until_us: int) -> tuple[LateGroup, ...]:
        """The late rows before an instant that are newer than the entry's bronze version; and all
        rows since the watermark was set back, if the entry is older than that."""
        if self.identity.time_column == "ingested_at":
            return ()  # no row is late
        read_us = entry.bronze_ingested_at_us
        return tuple(
            group
            for group in self._late(entry.delay_us)
            if (read_us is None or group.ingested_at_us > read_us) and group.first_us < until_us
        )

    def _late(self, delay_us: int) -> list[LateGroup]:
        if delay_us not in self.groups:
            source, since_us = self.identity.source, self.identity.since_us
            late = self.read_late(self.lake, source, delay_us, since_us, None)
            if self.reset_us is not None:  # all rows since, late or not
                since = late_groups(self.lake, source, -ANY_DELAY_US, since_us, self.reset_us)
                late = _in_order({*late, *since})
            self.groups[delay_us] = late
        return self.groups[delay_us]


SHOWN = 5
OF_STATUS = {"late_rows_not_restated", "state_lacks_rows", "table_not_right", "upstream_not_right"}
WHY: dict[Reason, str] = {
    "late rows": "without late rows that are in bronze",
    "other code": "by other code than today's",
    "not recorded": "nothing is recorded of it",
    "cut off": "a run was cut off, and the next one completes it",
    "upstream": "a table that it is made of is not right, or has changed since",
}


def status_findings(
    name: str, table_status: TableStatus, is_append: bool, is_mapped: bool = False
) -> list[Finding]:
    """A finding for each cause why a table, or its live state, is not right; `is_mapped`: its states
    come of a migration."""
    live = [table_status.live] if table_status.live is not None and table_status.live.reason else []
    late = [span for span in table_status.wrong if span.reason == "late rows"]
    of_live = [span for span in live if span.reason == "late rows"]
    others = [s for s in table_status.wrong if s not in late and s.reason != "upstream"]
    others = others or [s for s in live if s not in of_live]
    rebuild = f"`./stateful rebuild {name} --apply`"
    if is_mapped:
        rebuild += (
            f"; for rows before the mapping `./stateful rebuild {name} --full-refresh --apply`"
        )
    found = []
    if groups := not_restated(late):
        start, last = groups[0].date, groups[-1].date
        until = f"{last + timedelta(days=1)}"
        if (complete := known_instant(table_status.until_us)) and f"{complete:%F}" < until:
            until = f"{complete.replace(tzinfo=None).isoformat()}Z"
        restate = (
            f"`./stateful restate {name} {start} {until}`, or in Airflow backfill the Dag stream_{name}: "
            f"From {start} 00:00, To {last} 23:59 (UTC), Reprocess Behavior: All Runs; then "
        )
        dates = first_names([f"{day}" for day in sorted({g.date for g in groups})], SHOWN)
        rows = sum(group.rows for group in groups)
        said = f"the table is without {counted(rows, 'late row')} of {dates} that bronze has"
        action = f"{restate if is_append else ''}{rebuild}"
        found.append(_found("late_rows_not_restated", name, said, action, late, rows))
    elif late or of_live:
        missing = {group for span in (*late, *of_live) for group in span.missing}
        rows = sum(group.rows for group in missing)
        said = "what is emitted from the live state lacks the effect of late rows that bronze has"
        found.append(_found("state_lacks_rows", name, said, rebuild, late or of_live, rows))
    if others:
        said = f"nothing proves that the table is right: {spans_text(others)}"
        found.append(_found("table_not_right", name, said, rebuild, others))
    return found


def _found(
    finding: str, name: str, said: str, action: str, spans: Sequence[Span], rows: int | None = None
) -> Finding:
    first, last = min(span.from_us for span in spans), max(span.until_us for span in spans)
    edges = {"event_time_from": known_instant(first), "event_time_to": known_instant(last)}
    return FINDINGS[finding].found(name, said, action, count=rows, **edges)


def not_restated(late: Iterable[Span]) -> list[LateGroup]:
    """The late rows that are missing also in the span of their own instant."""
    found = {
        group
        for span in late
        for group in span.missing
        if group.first_us < span.until_us and span.from_us <= group.last_us
    }
    return sorted(found, key=lambda group: (group.date, group.ingested_at_us))


def spans_text(spans: Sequence[Span]) -> str:
    """Return the instants of some spans for a terminal."""
    texts = [
        f"from {instant_text(s.from_us)} until {instant_text(s.until_us)} UTC "
        f"({WHY[s.reason] if s.reason else 'right'})"
        for s in spans
    ]
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def instant_text(micros: int) -> str:
    """Return an instant of a table for a terminal, such as "the beginning"."""
    return "the beginning" if micros == BEGINNING_US else f"{instant_of(micros):%Y-%m-%d %H:%M:%S}"


def known_instant(micros: int | None) -> datetime | None:
    """The instant; None for the beginning, and for None."""
    return None if micros is None or micros == BEGINNING_US else instant_of(micros)


def state_between(table_status: TableStatus, from_us: int, until_us: int) -> str:
    """Return "right", or the reasons why a table is not right in `[from_us, until_us)`."""
    wrong = (s for s in table_status.wrong if s.from_us < until_us and from_us < s.until_us)
    return ", ".join(sorted({str(span.reason) for span in wrong})) or "right"


@dataclass(frozen=True)
class Upstream:
    """The first instant of a table from which on what it is made of is not right, or is not in it."""

    from_us: int
    why: str
    command: str  # that mends it, or is the first of those that do

    def within(self, table_status: TableStatus) -> TableStatus:
        """The verdict on a table with what is right by its own record alone as wrong from there on."""
        spans: list[Span] = []
        for span in table_status.spans:
            right_until_us = max(span.from_us, min(self.from_us, span.until_us))
            if span.reason is not None or right_until_us == span.until_us:
                spans.append(span)
                continue
            parts = [replace(span, until_us=right_until_us)]
            parts.append(replace(span, from_us=right_until_us, reason="upstream"))
            spans += [part for part in parts if part.from_us < part.until_us]
        return replace(table_status, spans=tuple(spans))

    def finding(self, name: str, table_status: TableStatus) -> Finding:
        wrong = [span for span in table_status.wrong if span.reason == "upstream"]
        said = f"{self.why}, from {instant_text(self.from_us)} on"
        return _found("upstream_not_right", name, said, f"`{self.command}`", wrong)


OfStream = Callable[[Stream], "StreamStatus"]


def _upstream(opened: OpenStream, of_parent: OfStream) -> Upstream | None:
    """The verdict on the tables that a stream's rows come of; None: they are right, or it reads none."""
    found = list[Upstream]()
    for source in inputs_first(source_named(opened.source)):
        if source.parent is not None:
            found += _of_table(opened, source.name, source.parent, of_parent)
        elif source.inputs and (first := MergedConnector(opened.lake, source).first_not_taken()):
            found.append(Upstream(*first, f"./stateful stream {opened.name}"))
    first_us = min((each.from_us for each in found), default=None)
    return None if first_us is None else replace(found[0], from_us=first_us)


def _of_table(opened: OpenStream, source: str, name: str, of_parent: OfStream) -> list[Upstream]:
    """The verdicts on the table of the stream `name`, of which bronze of a source is."""
    lake, run = opened.lake, "./stateful stream"
    done = position_in_bronze(lake, source)
    if done is None:
        return []
    found, status = [], of_parent(stream_named(name))
    if status.upstream is not None and status.upstream.from_us < done.until_us:
        found.append(status.upstream)
    parent = None if status.doubt else parent_of(lake, name)
    rebuild = f"./stateful rebuild {name} --apply"
    if parent is None:
        why = status.doubt or f"the table of {name} is gone"
        return [Upstream(BEGINNING_US, f"{name}: {why}", rebuild)]
    own = [span for span in status.table_status.wrong if span.reason != "upstream"]
    if own:
        why = f"the table of {name} is not right ({WHY[own[0].reason or 'upstream']})"
        found.append(Upstream(own[0].from_us, why, rebuild))
    if parent.complete_us < done.until_us:
        why = f"{name} was rewound, and has to come as far again"
        found.append(Upstream(parent.complete_us, why, f"{run} {name}"))
    if changed := parent.written_since(done):
        why = f"rows of {name} were written anew since they were taken"
        found.append(Upstream(changed[0][0], why, f"{run} {opened.name}"))
    return found


@dataclass(frozen=True)
class StreamStatus:
    """The status of a stream: the verdict on its table, and what keeps that from counting."""

    opened: OpenStream
    table_status: TableStatus
    upstream: Upstream | None = None
    bronze_changed: str | None = None  # how others have changed bronze
    unfinished: str | None = None  # an erasure of a key that the table may have
    read_late: ReadLate = late_groups  # shared by the statuses of one look

    @property
    def doubt(self) -> str | None:
        """The reason why the verdict does not count; None when it does."""
        return self.opened.mismatch or self.bronze_changed or self.unfinished

    @property
    def is_right(self) -> bool:
        """True if the table has every row that it should have until now, and no other."""
        is_complete = self.table_status.until_us is not None
        return self.doubt is None and is_complete and not self.table_status.wrong

    @property
    def live_is_right(self) -> bool:
        """True if the state is right that the next rows come from."""
        return self.doubt is None and self.table_status.live_is_right

    def text(self) -> str:
        """Return the verdict for a terminal, in one line."""
        table_status = self.table_status
        if self.doubt is not None:
            return f"cannot be counted on: {self.doubt}"
        if table_status.until_us is None:
            return "has nothing complete yet"
        until = f"is complete until {instant_text(table_status.until_us)} UTC"
        if table_status.wrong:
            return f"{until}, and not right {spans_text(table_status.wrong)}"
        return f"{until}, and right{'' if self.live_is_right else '; its live state is not'}"

    @property
    def findings(self) -> list[Finding]:
        """The findings on the table and its bronze."""
        opened, row, found = self.opened, self.opened.row, []
        if self.bronze_changed is not None:
            mend = str(how_to_mend(f"bronze/{opened.source}"))
            known = FINDINGS["bronze_changed"]
            found.append(known.found(opened.source, self.bronze_changed, mend))
        if self.unfinished is not None:
            known, mend = FINDINGS["erasure_unfinished"], f"./stateful erase {opened.source} KEY"
            found.append(known.found(opened.source, self.unfinished, f"`{mend} --apply`"))
        table = opened.lake.table(opened.name)
        if row is None and not opened.lake.is_delta_table(table):
            return found  # it has not run; or a checkpoint alone is left, which a run refuses
        if opened.mismatch is not None:
            mend = str(how_to_mend(f"checkpoints/{opened.name}"))
            said = f"{table} is not what was recorded of it: {opened.mismatch}"
            return [*found, FINDINGS["table_changed"].found(opened.name, said, mend)]
        if row is None:
            return found
        is_append, is_mapped = row["output_mode"] == "append", mapped_savepoint(row["code"])
        found += status_findings(opened.name, self.table_status, is_append, is_mapped is not None)
        if self.upstream is not None and "upstream" in (s.reason for s in self.table_status.wrong):
            found.append(self.upstream.finding(opened.name, self.table_status))
        return found


class Statuses:
    """The statuses of many streams: each is judged once, also where others are made of its table."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._known = lake, dict[str, StreamStatus]()
        self._read_late = cache(late_groups)  # streams of a source often have the same delay

    def of(self, stream: Stream) -> StreamStatus:
        """Return the status of a stream by today's code; LakeError when bronze cannot be read."""
        if stream.name not in self._known:
            opened = open_stream(self._lake, stream)
            table_status = judged(opened, opened.identity, self._read_late)
            status = _status(opened, table_status, self.of)
            self._known[stream.name] = replace(status, read_late=self._read_late)
        return self._known[stream.name]


def stream_status(lake: Lake, stream: Stream) -> StreamStatus:
    """Return the status of one stream by today's code; LakeError when bronze cannot be read."""
    return Statuses(lake).of(stream)


def status_of_run(lake: Lake, stream: Stream) -> StreamStatus:
    """Return the status by the code of the newest run, for the check after it, which loads no code."""
    opened = open_stream(lake, stream)
    row, own = opened.row or GenerationRow(), opened.record.own
    in_processing_time = row["timeout"] == GroupStateTimeout.ProcessingTimeTimeout
    ran = StreamIdentity(
        stream=stream.name,
        source=stream.source,
        output_mode=row["output_mode"],
        time_column="ingested_at" if in_processing_time else "event_time",
        delay_us=0,  # each entry has its own
        code="" if own is None else own.codes[-1],
        state_schema=row["state_schema"],
        since_us=row["initial_as_of_us"],
    )
    return _status(opened, judged(opened, ran), partial(status_of_run, lake))


def _status(opened: OpenStream, table_status: TableStatus, of_parent: OfStream) -> StreamStatus:
    erasure, until_us = opened.amendments.unfinished_erasure(opened.row), table_status.until_us
    bronze_changed = how_bronze_changed(opened.lake, opened.source)
    is_known = until_us is not None and bronze_changed is None
    upstream = _upstream(opened, of_parent) if is_known else None
    if upstream is not None and until_us is not None and upstream.from_us >= until_us:
        upstream = None
    if upstream is not None:
        if opened.row is not None and opened.row["output_mode"] == "update":
            upstream = replace(upstream, from_us=BEGINNING_US)  # it shows one state
        table_status = upstream.within(table_status)
    return StreamStatus(
        opened,
        table_status,
        upstream,
        bronze_changed=bronze_changed,
        unfinished=None if erasure is None else erasure.unfinished(opened.name).message,
    )


def judged(
    opened: OpenStream, identity: StreamIdentity, read_late: ReadLate | None = None
) -> TableStatus:
    """Judge the stream's table by `identity`; LakeError when bronze cannot be read."""
    set_back = opened.amendments.unknown_set_watermark(opened.row)
    table_status = judge(opened.lake, opened.record.entries, identity, set_back, read_late)
    if table_status.until_us is None or not opened.is_ahead:
        return table_status
    span = Span(BEGINNING_US, table_status.until_us, "cut off")
    return replace(table_status, spans=table_status.wrong or (span,))


def dead_letters_status(opened: OpenStream, identity: StreamIdentity) -> TableStatus:
    """Judge the stream's dead letters, each of its own instant also for an update table."""
    as_append = replace(identity, output_mode="append")
    return judge(
        opened.lake,
        opened.record.entries,
        as_append,
        opened.amendments.unknown_set_watermark(opened.row),
    )
