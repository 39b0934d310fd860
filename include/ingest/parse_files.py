"""The outcome of each landed row, accepted or refused, and of each file; bronze's and quarantine's rows.

The same code runs here, in a few processes (`parse_here`), and on Spark's workers
(spark_jobs/tables/landing.py), when much has landed.
"""

import hashlib
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from heapq import nlargest
from itertools import chain, islice
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from include.catalogue import FINDINGS
from include.ingest.bronze_tables import bronze_columns, quarantine_columns
from include.ingest.formats import LandedRows, folder_values
from include.ingest.landed_values import RefusedError, Rescue, UnreadableFileError, reader_of_events
from include.ingest.splits import Batch, Outcome, ReadSplit, Split, connector_columns
from include.ingest.watermark import SourceWatermark, group_of, watermark_instants
from include.lake.columns import INSTANT, arrow_type, documented, instant_scalar, without_comments
from include.lake.ops import Finding
from include.lake.paths import Lake
from include.lake.table import Staged, stage
from include.settings import MIB, RESCUED, Source
from include.text_table import counted

# Kinds of outcomes
FILE, ACCEPTED, REFUSED = "file", "accepted", "refused"
BEFORE_ALL_US = -(2**63)
WHOLE_FILE = 0  # the row number of a file that could not be read
UNREADABLE_FILE = "unreadable_file"  # its reason's code
ROWS_AT_ONCE = 10_000
# With less in a batch a second process takes longer to start than it saves.
BYTES_A_PROCESS = 4 * MIB
SHARES_A_PROCESS = 8  # as files differ in size

# Of a row, but for `counts`: of a file, JSON.
TEXTS = ("kind", "source_file", "counts", "quarantine_id", "reason_code", "reason", "raw", RESCUED)
OUTCOME = {**dict.fromkeys(TEXTS, "string"), "row_number": "bigint", "event_time_us": "bigint"}


def outcome_schema(source: Source) -> pa.Schema:
    types = {f"value_{field.name}": field.type for field in source.fields} | OUTCOME
    types |= {column.name: column.type for column in connector_columns(source, is_refused=True)}
    return pa.schema([(name, arrow_type(kind)) for name, kind in types.items()])


def value_columns(source: Source) -> list[str]:
    """The columns of its fields in an outcome; a field may be called `raw` or `reason`, too."""
    return [f"value_{field.name}" for field in source.fields]


def in_batches(rows: Iterator[Outcome], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield outcomes in Arrow's batches of some thousands; of fewer where their texts are long."""
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        # By a table, which has as many arrays as it needs: one of Arrow's ends at 2 GiB.
        yield from pa.Table.from_pylist(chunk, schema=schema).to_batches()


def parse_here(source: Source, read: ReadSplit, splits: Sequence[Split]) -> pa.Table:
    """The outcomes of all rows of the splits, and of each split; by several processes if it pays."""
    all_bytes, schema = sum(split.bytes for split in splits), outcome_schema(source)
    processes = min(len(os.sched_getaffinity(0)), all_bytes // BYTES_A_PROCESS, len(splits))
    parse = partial(_parse_some, schema, read)
    if processes < 2:
        return pa.Table.from_batches(parse(splits), schema)
    # Not forked: Arrow's threads would be missing in the child.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        some = -(-len(splits) // (processes * SHARES_A_PROCESS))
        shares = [splits[begin : begin + some] for begin in range(0, len(splits), some)]
        parts = chain.from_iterable(pool.map(parse, shares))
        return pa.Table.from_batches(parts, schema)


def _parse_some(
    schema: pa.Schema, read: ReadSplit, splits: Sequence[Split]
) -> list[pa.RecordBatch]:
    return list(in_batches(chain.from_iterable(map(read, splits)), schema))


def outcomes_of_content(
    opened: Callable[[], LandedRows], source: Source, name: str, ingested_at_us: int
) -> Iterator[Outcome]:
    """Yield the outcomes of a file that `opened` gives; an unreadable one is refused as a whole."""

    def outcomes(rescue: Rescue) -> Iterator[Outcome]:
        try:
            folder, rows = folder_values(name, source), opened()
        except UnreadableFileError as error:
            yield refused(name, WHOLE_FILE, RefusedError(UNREADABLE_FILE, str(error)), None)
            return
        values = (lambda item: {**rows.values(item), **folder}) if folder else rows.values
        judge = judge_of_rows(source, rescue, values, rows.raw)
        for row_number, item in enumerate(rows.items(), start=1):
            yield judge(name, row_number, item, ingested_at_us)

    yield from with_counts(source, name, outcomes)


def with_counts(
    source: Source, name: str, outcomes: Callable[[Rescue], Iterator[Outcome | None]]
) -> Iterator[Outcome]:
    """Yield the outcomes of a split's rows, but not None, and last its own, with their counts."""
    rescue, counts = Rescue(source), Counts(files_landed=1)
    for outcome in outcomes(rescue):
        if outcome is None:
            counts.skipped += 1
            continue
        outcome["source_file"] = name
        counts.add_row(source, outcome)
        yield outcome
    counts.unknown = rescue.counts
    yield {"kind": FILE, "source_file": name, "counts": json.dumps(vars(counts))}


def judge_of_rows(
    source: Source,
    rescue: Rescue,
    values: Callable[[Any], Mapping[str, object]],
    raw: Callable[[Any], str | None],
) -> Callable[[str, int, Any, int], Outcome]:
    """A function that gives the outcome of a row; `values` and `raw` give a row's fields and text."""
    to_event, has_all, columns = reader_of_events(source), rescue.has_all, value_columns(source)

    def judge(name: str, row_number: int, item: Any, ingested_at_us: int) -> Outcome:
        try:
            row = values(item)
            event = to_event(row, ingested_at_us)
            rescued = None if has_all(row) else rescue.text(row)
        except RefusedError as refusal:
            return refused(name, row_number, refusal, raw(item))
        outcome: Outcome = dict(zip(columns, event.values, strict=True))
        outcome["kind"] = ACCEPTED
        outcome["row_number"] = row_number
        outcome["event_time_us"] = event.event_time_us
        outcome[RESCUED] = rescued
        return outcome

    return judge


def refused(name: str, row_number: int, refusal: RefusedError, raw: str | None) -> Outcome:
    """The outcome of a row that is no event; its id is the same each time the file is read."""
    return {
        "kind": REFUSED,
        "row_number": row_number,
        "quarantine_id": quarantine_id(name, row_number),
        "reason_code": refusal.code,
        "reason": refusal.reason,
        "raw": raw,
    }


# The end of `source_file` in bronze of a row from quarantine: FILE#QUARANTINE_ID.
REINGESTED_ROW = "#[0-9a-f]{32}$"


def quarantine_id(name: str, row_number: int) -> str:
    return hashlib.sha256(f"{row_number} {name}".encode()).hexdigest()[:32]


@dataclass
class Counts:
    """The counts of a split, a batch or a run; two can be added."""

    batches: int = 0
    files_landed: int = 0
    rows_bronze: int = 0
    rows_quarantined: int = 0
    rows_rescued: int = 0  # of those of bronze: they had more than the source's fields
    # Not in `ops/runs`: messages that were passed over; rows by unknown field, and by the reason's
    # code; the newest events of two files, and of each group.
    skipped: int = field(default=0, compare=False)
    unknown: Counter[str] = field(default_factory=Counter, compare=False)
    refused: Counter[str] = field(default_factory=Counter, compare=False)
    newest: dict[str, int] = field(default_factory=dict, compare=False)
    groups: dict[str, int] = field(default_factory=dict, compare=False)

    def of_run(self) -> dict[str, int]:
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        return own | {"rows_landed": self.rows_bronze + self.rows_quarantined}

    def findings(self, source: Source) -> list[Finding]:
        """A warning where more than `max_quarantined` of the rows were refused, or a whole file."""
        refused, landed = self.rows_quarantined, self.rows_bronze + self.rows_quarantined
        if UNREADABLE_FILE not in self.refused and refused <= source.max_quarantined * landed:
            return []
        codes = ", ".join(f"{rows} {code}" for code, rows in sorted(self.refused.items()))
        said = f"of {counted(landed, 'row')} that landed for {source.name}, {refused} went to quarantine: {codes}"
        share, most = refused / landed, source.max_quarantined
        found = FINDINGS["rows_quarantined"].found
        return [found(source.name, said, count=refused, figure=share, limit=most)]

    def add_row(self, source: Source, outcome: Outcome) -> None:
        """Count the outcome of a row."""
        if outcome["kind"] == REFUSED:
            self.rows_quarantined += 1
            self.refused[outcome["reason_code"]] += 1
            return
        self.rows_bronze += 1
        self.rows_rescued += outcome[RESCUED] is not None
        event_us, name = outcome["event_time_us"], outcome["source_file"]
        if event_us > self.newest.get(name, BEFORE_ALL_US):
            self.newest[name] = event_us
        if source.watermark_per is not None:
            group = group_of(source, name, outcome)
            self.groups[group] = max(event_us, self.groups.get(group, event_us))

    def __iadd__(self, other: "Counts") -> "Counts":
        for name, of in vars(other).items():
            own = getattr(self, name)
            if isinstance(of, int):
                setattr(self, name, own + of)
            elif isinstance(own, Counter):
                own.update(of)
            else:
                own |= {key: max(value, own.get(key, value)) for key, value in of.items()}
        self.newest = dict(nlargest(2, self.newest.items(), key=lambda of: of[1]))
        return self


def counts_in(outcomes_of_files: Iterable[str]) -> Counts:
    """The sum of the counts in outcomes of files."""
    counts = Counts()
    for text in outcomes_of_files:
        counts += Counts(**json.loads(text))
    return counts


class Parsed(Protocol):
    """The outcomes of a batch, to be written as files of bronze and quarantine."""

    def counts(self) -> Counts: ...

    def stage_accepted(self, before: SourceWatermark, after: SourceWatermark) -> list[Staged]: ...

    def stage_refused(self) -> list[Staged]: ...


Parse = Callable[[Lake, Source, Batch, ReadSplit], AbstractContextManager[Parsed]]


def bronze_schema(source: Source) -> pa.Schema:
    return without_comments(documented(bronze_columns(source)))


def quarantine_schema(source: Source) -> pa.Schema:
    return without_comments(documented(quarantine_columns(source)))


def bronze_rows(
    source: Source, events: pa.Table, before: SourceWatermark, after: SourceWatermark
) -> pa.Table:
    """Events as bronze stores them, in a commit that moves the watermark from `before` to `after`.

    `events` has `event_time_us`, `source_file`, null for a heartbeat, and some columns of bronze.
    """
    times = events["event_time_us"].cast(pa.int64()).cast(INSTANT)
    instants = watermark_instants(before, after)
    columns = dict(zip(events.column_names, events.columns, strict=True)) | {
        "event_time": times,
        "event_date": times.cast(pa.date32()),
        "is_heartbeat": pc.is_null(events["source_file"]),
        **{name: pa.repeat(pa.scalar(us, INSTANT), len(times)) for name, us in instants.items()},
    }
    schema, none = bronze_schema(source), pa.nulls(len(times))
    return pa.table({name: columns.get(name, none) for name in schema.names}).cast(schema)


def bronze_rows_of(
    source: Source, outcomes: pa.Table, before: SourceWatermark, after: SourceWatermark
) -> pa.Table:
    """Accepted rows as bronze stores them, in a commit from `before` to `after`."""
    names = {f"value_{field.name}": field.name for field in source.fields}
    added = (column.name for column in connector_columns(source))
    columns = [*names, "event_time_us", "source_file", RESCUED, *added]
    events = outcomes.select(columns).rename_columns([names.get(name, name) for name in columns])
    return bronze_rows(source, events, before, after)


def quarantine_rows_of(source: Source, outcomes: pa.Table, at_us: int) -> pa.Table:
    """Refused rows as quarantine stores them: null where an outcome says nothing."""
    at, schema = pa.repeat(instant_scalar(at_us), outcomes.num_rows), quarantine_schema(source)
    rows = [schema.empty_table(), outcomes.append_column("ingested_at", at)]
    return pa.concat_tables(rows, promote_options="permissive").select(schema.names).cast(schema)


class ParsedHere:
    """Outcomes as an Arrow table in memory."""

    def __init__(self, lake: Lake, source: Source, batch: Batch, outcomes: pa.Table) -> None:
        self._lake, self._source, self._batch = lake, source, batch
        self._outcomes = outcomes

    def counts(self) -> Counts:
        return counts_in(self._outcomes["counts"].drop_null().to_pylist())

    def stage_accepted(self, before: SourceWatermark, after: SourceWatermark) -> list[Staged]:
        rows = bronze_rows_of(self._source, self._of(ACCEPTED), before, after)
        return stage(self._lake.bronze(self._source.name), rows, rows.schema, by="event_date")

    def stage_refused(self) -> list[Staged]:
        rows = quarantine_rows_of(self._source, self._of(REFUSED), self._batch.ingested_at_us)
        return stage(self._lake.quarantine(self._source.name), rows, rows.schema)

    def _of(self, kind: str) -> pa.Table:
        return self._outcomes.filter(pc.equal(self._outcomes["kind"], kind))


@contextmanager
def parsed_here(lake: Lake, source: Source, batch: Batch, read: ReadSplit) -> Iterator[ParsedHere]:
    """Parse a batch by processes of this machine, in memory, as it has `commit_bytes` at most."""
    yield ParsedHere(lake, source, batch, parse_here(source, read, batch.splits))
