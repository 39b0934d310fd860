"""The record of a stream, which each commit to its table carries, and how a run moves it on by batches:
which instants of the table come of which replay or run, how far live has come, the generation with
its pinned settings, and the totals of its rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from include.fold.admission import US_PER_MS, micros_of
from include.lake.delta_log import commit_hash, open_rows_of
from include.lake.errors import RowCountError, SettingsError
from include.lake.generations import ROW, GenerationRow, Generations, is_rebuilt
from include.lake.paths import Lake
from include.lake.table import Record, Table
from include.settings import Stream
from include.stream.bronze import count_events
from include.stream.checkpoint import batch_watermark_ms, offsets_hash, read_position
from include.stream.manifest import code_of
from include.text_table import counted

Kind = Literal["live", "restate", "rebuild"]


@dataclass(frozen=True, kw_only=True)
class RecordEntry:
    """Instants `[from_us, until_us)` of a table, and the bronze rows and code that its rows come of.

    These are all rows of bronze up to `bronze_version`; of a live entry also those up to `read_version`
    that were not late under `delay_us`; and no others. Instants are microseconds on the stream's
    clock; `from_us` None is the beginning, `until_us` None nothing.
    """

    kind: Kind
    from_us: int | None = None
    until_us: int | None = None
    generation: int
    run_id: str | None = None
    delay_us: int
    codes: tuple[str, ...]  # of all runs that the state went through, the newest last
    bronze_id: str | None = None
    bronze_version: int | None = None  # None: no row is in the state for sure
    bronze_ingested_at_us: int | None = None
    read_version: int | None = None
    read_commit: str | None = None  # hash of that commit of bronze: version numbers come again
    batch_id: int | None = None  # of a live entry: the newest batch that is counted
    mapped_from: str | None = None  # the code whose states a migration has mapped
    number: int = 0  # in the stream's record, from 1: a later entry overrides earlier ones


@dataclass(frozen=True, kw_only=True)
class StreamRecord:
    """The record of a stream as of one commit to its table; a new stream's has no entries."""

    stream: str
    # Of all records that follow on one another: one that is begun anew numbers its entries from 1 again.
    lineage: str = ""
    row: GenerationRow | None = None  # of live's generation
    entries: tuple[RecordEntry, ...] = ()  # in order, without those that later ones hide as a whole
    offsets_hash: str | None = None  # of live's newest batch, in its checkpoint
    totals: Mapping[str, Any] = field(default_factory=dict)  # ... after that batch
    dead_letters: int = 0  # the version of the dead letters that the table's rows go with
    dead_letters_commit: str | None = None  # hash of that commit: version numbers come again

    @property
    def own(self) -> RecordEntry | None:
        """The newest entry that says how far the whole table has come: no restatement does."""
        return newest_own(self.entries)

    def batch_of(self, generation: int) -> int | None:
        """The newest batch of a generation in the table; None before its first."""
        own = self.own
        if own is None or (own.kind, own.generation) != ("live", generation):
            return None
        return own.batch_id

    def with_entry(self, entry: RecordEntry) -> "StreamRecord":
        """Return the record with a new entry, or with this one in place of that of its number."""
        number = entry.number or 1 + max((known.number for known in self.entries), default=0)
        others = [known for known in self.entries if known.number != number]
        entries = sorted([*others, replace(entry, number=number)], key=lambda each: each.number)
        lineage = self.lineage or uuid4().hex[:16]
        return replace(self, entries=tuple(_needed(entries)), lineage=lineage)

    def as_json(self) -> Record:
        """Return the record in values of JSON, without those that are None."""
        entries = [{n: v for n, v in asdict(e).items() if v is not None} for e in self.entries]
        until_us = None if self.own is None else self.own.until_us
        more = {"entries": entries, ROW: self.row, "complete_until_us": until_us}
        return asdict(replace(self, row=None)) | more


def recorded(generations: Generations) -> StreamRecord:
    """The record that was read with a generation; a new stream's when it does not hold."""
    found = generations.record
    if found is None or generations.mismatch is not None:
        return StreamRecord(stream=generations.stream)
    known = {name: found[name] for name in StreamRecord.__dataclass_fields__ if name in found}
    entries = (RecordEntry(**each | {"codes": tuple(each["codes"])}) for each in found["entries"])
    row = found[ROW] and GenerationRow(found[ROW])
    return StreamRecord(**known | {"entries": tuple(entries), "row": row})


def newest_own(entries: Sequence[RecordEntry]) -> RecordEntry | None:
    """The newest entry that says how far the whole table has come: no restatement does."""
    own = [entry for entry in entries if entry.kind != "restate"]
    return max(own, key=lambda entry: entry.number, default=None)


MOST_ENTRIES = 200  # some 20 KB of each commit
NO_CODE = "?"  # of an entry whose rows nothing proves right


def _needed(entries: Sequence[RecordEntry]) -> list[RecordEntry]:
    seen = {part.entry.number for part in segments_of(entries)}
    own = newest_own(entries)
    retained = [each for each in entries if each.number in seen or each is own or each.mapped_from]
    restates = [each for each in retained if each.kind == "restate" and not each.mapped_from]
    more = max(len(retained) + 1 - MOST_ENTRIES, 0)
    if more < 2 or len(restates) < more:
        return retained
    # The oldest as one, over all the time that they cover, which nothing proves right any more.
    oldest = restates[:more]
    merged = replace(
        oldest[-1],
        from_us=min(each.from_us or BEGINNING_US for each in oldest),
        until_us=max(each.until_us or FOR_EVER_US for each in oldest),
        codes=(NO_CODE,),
    )
    return [merged if each is oldest[-1] else each for each in retained if each not in oldest[:-1]]


BEGINNING_US = -(2**63)
FOR_EVER_US = 2**63 - 1


@dataclass(frozen=True)
class Segment:
    """A part of the table's time, and the entry that its rows come of."""

    from_us: int  # BEGINNING_US: from the beginning
    until_us: int
    entry: RecordEntry


def segments_of(entries: Iterable[RecordEntry]) -> list[Segment]:
    """The parts of the table's time that entries cover, in order, each with its newest entry."""
    seen: list[Segment] = []
    for entry in sorted(entries, key=lambda entry: entry.number):
        from_us = BEGINNING_US if entry.from_us is None else entry.from_us
        until_us = from_us if entry.until_us is None else entry.until_us
        hidden_until_us = FOR_EVER_US if entry.kind == "rebuild" else until_us
        if from_us < hidden_until_us:
            seen = [part for known in seen for part in _around(known, from_us, hidden_until_us)]
        if from_us < until_us:
            seen.append(Segment(from_us, until_us, entry))
    return sorted(seen, key=lambda segment: segment.from_us)


def _around(segment: Segment, from_us: int, until_us: int) -> list[Segment]:
    """The parts of a segment that a later entry leaves."""
    if segment.until_us <= from_us or until_us <= segment.from_us:
        return [segment]
    before = Segment(segment.from_us, min(segment.until_us, from_us), segment.entry)
    behind = Segment(max(segment.from_us, until_us), segment.until_us, segment.entry)
    return [part for part in (before, behind) if part.from_us < part.until_us]


# Totals in the record, and the count of a batch that each adds up since a generation's first.
TOTALS = {
    "total_in": "rows_in",
    "total_folded": "rows_folded",
    "total_late": "rows_late",
    "total_before_initial_state": "rows_before_initial_state",
    "total_duplicate": "rows_duplicate",
    "rows_pending": "pending_change",
}
WATERMARK = "watermark_us"
# A savepoint made under another one of these still serves a rebuild.
CHANGE_NO_STATE = ("buckets", "state_partitions", "watermark_delay_ms")


def refuse_other_settings(row: GenerationRow, settings: dict[str, Any]) -> None:
    """Raise SettingsError when a setting differs from what the generation was made with."""
    for name, value in settings.items():
        if row[name] == value:
            continue
        mend = "put that back, or rebuild its state and its table from bronze"
        if name == "state_schema":
            mend += " (or by the file's migrate_state, with --migrate-state for --full-refresh)"
        option = "" if name in CHANGE_NO_STATE else " --full-refresh"
        raise SettingsError(
            f"stream {row['stream']}: {name} is now {value}, but its state was made with {row[name]}: "
            f"{mend}",
            code="settings_changed",
            subject=name,
            command=f"./stateful rebuild {row['stream']}{option} --apply",
        )


def refuse_new_code(record: StreamRecord, stream: Stream, code: str) -> None:
    """Raise SettingsError when a run is the first with its code, unless on_code_change allows it."""
    own = record.own
    if stream.on_code_change == "run" or own is None or code_of(own.codes[-1]) == code_of(code):
        return
    raise SettingsError(
        f"the code of {stream.name} is another than its newest run's, as `./stateful status "
        f"{stream.name}` says: rebuild its table and state by it; or set on_code_change to run for "
        "one run, which goes on with the state of before",
        code="code_changed",
        subject=stream.name,
        command=f"./stateful rebuild {stream.name} --apply",
    )


def with_code(row: GenerationRow, code: str, event_schema: str) -> GenerationRow:
    """Return the row with a run's events, and the instant since which its state is of several codes."""
    new: dict[str, Any] = {"event_schema": event_schema}
    known = row["code"]
    if row["code_changed_at_us"] is None and known is not None and code_of(known) != code_of(code):
        new |= {"code_changed_at_us": micros_of(datetime.now(UTC))}
    return GenerationRow({**row, **new})


def commit_alone(lake: Lake, record: StreamRecord) -> None:
    """Commit a record without a row."""
    table = Table.open(lake, lake.table(record.stream))
    table.record()
    table.commit([], record.as_json())


def begun_by(row: GenerationRow, record: StreamRecord, run_id: str, code: str) -> RecordEntry:
    """The live entry that a run of the generation goes on with; or a new one, with the number 0."""
    own, seed = record.own, row if is_rebuilt(row) else GenerationRow()
    new = RecordEntry(
        kind="live",
        generation=row["generation"],
        run_id=run_id,
        delay_us=row["watermark_delay_ms"] * US_PER_MS,
        codes=(code,),
        bronze_id=row["bronze_id"],
        bronze_version=seed["bronze_version"],
        bronze_ingested_at_us=seed["bronze_ingested_at_us"],
    )
    if own is None:
        return new
    is_same_code = own.codes[-1] == code
    if is_same_code and (own.kind, own.delay_us) == ("live", new.delay_us):
        return own
    return replace(
        new,
        codes=new.codes if is_same_code else (*own.codes, code),
        from_us=own.from_us if row["output_mode"] == "update" else own.until_us,
        until_us=own.until_us,
        read_version=own.read_version,
        read_commit=own.read_commit,
        batch_id=record.batch_of(row["generation"]),
    )


def reached_by(lake: Lake, row: GenerationRow, own: RecordEntry, batch_id: int) -> RecordEntry:
    """The live entry once a batch is committed, as its checkpoint says."""
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    watermark_ms = batch_watermark_ms(lake, checkpoint, batch_id)
    until_us = None if watermark_ms is None else watermark_ms * US_PER_MS + 1
    if is_rebuilt(row):  # its seed is complete until there, whatever the batch brought
        until_us = max(row["until_us"], until_us or row["until_us"])
    position = read_position(lake, f"{checkpoint}/offsets/{batch_id}")
    version = position.version - 1
    return replace(
        own,
        until_us=until_us,
        batch_id=batch_id,
        bronze_id=position.table_id,
        read_version=version,
        read_commit=commit_hash(lake, lake.bronze(row["source"]), version),
    )


def after_batch(
    lake: Lake, record: StreamRecord, row: GenerationRow, batch_id: int, totals: Mapping[str, Any]
) -> StreamRecord:
    """Return the record with a batch of the generation, and the totals after it."""
    assert record.own is not None  # the run has begun it
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    return replace(
        record.with_entry(reached_by(lake, row, record.own, batch_id)),
        offsets_hash=offsets_hash(lake, checkpoint, batch_id),
        totals=totals,
    )


def added(totals: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the totals after a batch. The watermark never goes back."""
    sums = {total: totals[total] + counts[name] for total, name in TOTALS.items()}
    known = [us for us in (totals[WATERMARK], counts[WATERMARK]) if us is not None]
    return sums | {WATERMARK: max(known, default=None)}


def totals_of(record: StreamRecord, row: GenerationRow | None) -> Mapping[str, Any]:
    """The totals of a generation's rows; before its first batch those that its seed stands for."""
    if row is not None and record.batch_of(row["generation"]) is not None:
        return record.totals
    none: dict[str, Any] = {**dict.fromkeys(TOTALS, 0), WATERMARK: None}
    if row is None or not is_rebuilt(row):
        return none
    seed = {
        "total_folded": row["seed_events"],
        "total_before_initial_state": row["seed_before_initial_state"],
        "rows_pending": row["seed_pending"],
    }
    return none | seed | {"total_in": sum(seed.values())}


def check_rows_add_up(lake: Lake, record: StreamRecord, row: GenerationRow) -> None:
    """Raise RowCountError unless the rows of bronze that were read equal the record's total, and each
    is folded, late, before the initial state, duplicate or pending."""
    own = record.own
    if own is None or own.read_version is None or record.batch_of(row["generation"]) is None:
        return
    version, bronze = own.read_version, lake.bronze(row["source"])
    in_bronze = count_events(open_rows_of(lake, bronze, version))
    totals = totals_of(record, row)
    done = {name: totals[name] for name in TOTALS if name != "total_in"}
    if not in_bronze == totals["total_in"] == sum(done.values()):
        raise RowCountError(
            f"stream {row['stream']}: {bronze} has {counted(in_bronze, 'event')} up to version "
            f"{version}, but {totals['total_in']} were read, and {sum(done.values())} accounted for "
            f"({done}). The table cannot be trusted: keep the lake as it is; or rebuild table and state "
            "from bronze",
            subject=row["stream"],
            command=f"./stateful rebuild {row['stream']} --full-refresh --apply",
        )
