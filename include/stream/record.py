"""What each commit to a stream's table says of the stream, its record: which instants of the table
are of which fold, how far live has come, what its generation is pinned to, the totals of its rows.

How a run moves that on, batch by batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import US_PER_MS, micros_of
from include.lake.delta_log import commit_hash, open_rows_of, open_table
from include.lake.errors import RowCountError, SettingsError
from include.lake.generations import (
    ROW,
    GenerationRow,
    Generations,
    is_rebuilt,
)
from include.lake.paths import Lake, files_of
from include.lake.table import Record, Table
from include.settings import Stream
from include.stream.checkpoint import batch_watermark_ms, plan_hash, read_position
from include.stream.manifest import code_of
from include.text_table import counted

Kind = Literal["live", "restate", "rebuild"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Instants `[from_us, until_us)` of a table, and the fold that their rows are of.

    That fold has all rows of bronze up to that version of bronze; a live one also those up to `read_version`
    that were not late under `delay_us`; and none of the others. Instants are microseconds on the
    stream's clock; `from_us` None is the beginning, `until_us` None nothing.
    """

    kind: Kind
    from_us: int | None = None
    until_us: int | None = None
    generation: int
    run_id: str | None = None
    delay_us: int
    codes: tuple[str, ...]  # all that the state ever went through, the newest last
    bronze_id: str | None = None
    bronze_version: int | None = (
        None  # that version of bronze; None: no row is in the fold for sure
    )
    bronze_ingested_at_us: int | None = None
    read_version: int | None = None
    read_commit: str | None = None  # which commit of bronze that was: numbers come again
    batch_id: int | None = None  # live: the newest that is counted in
    mapped_from: str | None = None  # the code whose states a migration has mapped
    number: int = 0  # in the stream's record, from 1: a later entry overrides earlier ones


@dataclass(frozen=True, kw_only=True)
class StreamRecord:
    """The record of a stream, as of one commit to its table; without entries, of a new one."""

    stream: str
    row: GenerationRow | None = None  # of live's generation
    entries: tuple[Entry, ...] = ()  # in order; those that later ones hide as a whole are left out
    plan: str | None = None  # hash of that of live's newest batch, in its checkpoint
    totals: Mapping[str, Any] = field(default_factory=dict)  # ... after that batch
    dead_letters: int = 0  # number of the commit to the dead letters that it counts on
    dead_letters_commit: str | None = None  # which commit that was: numbers come again

    @property
    def own(self) -> Entry | None:
        """The newest entry that says how far the whole table has come."""
        return newest_own(self.entries)

    def batch_of(self, generation: int) -> int | None:
        """The newest batch of a generation that is in the table; None: none is."""
        own = self.own
        if own is None or (own.kind, own.generation) != ("live", generation):
            return None
        return own.batch_id

    def with_entry(self, entry: Entry) -> "StreamRecord":
        """The record after a commit that the entry is of: a new one, or one with its number."""
        number = entry.number or 1 + max((known.number for known in self.entries), default=0)
        others = [known for known in self.entries if known.number != number]
        entries = sorted([*others, replace(entry, number=number)], key=lambda each: each.number)
        return replace(self, entries=tuple(_needed(entries)))

    def as_json(self) -> Record:
        """It in plain values, without what is not known."""
        known = [{n: v for n, v in asdict(e).items() if v is not None} for e in self.entries]
        until_us = None if self.own is None else self.own.until_us
        said = {"entries": known, ROW: self.row, "complete_until_us": until_us}
        return asdict(replace(self, row=None)) | said


def record_in(told: Mapping[str, Any]) -> StreamRecord:
    """The record in what a commit says of itself."""
    names = StreamRecord.__dataclass_fields__
    entries = tuple(Entry(**each | {"codes": tuple(each["codes"])}) for each in told["entries"])
    row = None if told[ROW] is None else GenerationRow(told[ROW])
    known = {n: told[n] for n in names if n in told}
    return StreamRecord(**known | {"entries": entries, "row": row})


def recorded(generations: Generations) -> StreamRecord:
    """The record that was read with a generation, a new stream's where that does not hold."""
    told = generations.told
    if told is None or generations.mismatch is not None:
        return StreamRecord(stream=generations.stream)
    return record_in(told)


def newest_own(entries: Sequence[Entry]) -> Entry | None:
    """The newest entry that says how far the whole table has come: no restatement does."""
    own = [entry for entry in entries if entry.kind != "restate"]
    return max(own, key=lambda entry: entry.number, default=None)


MOST_ENTRIES = 200  # some 20 KB of each commit
NO_CODE = "?"  # of an entry that nobody can call right


def _needed(entries: Sequence[Entry]) -> list[Entry]:
    seen = {part.entry.number for part in segments_of(entries)}
    own = newest_own(entries)
    retained = [each for each in entries if each.number in seen or each is own or each.mapped_from]
    restates = [each for each in retained if each.kind == "restate" and not each.mapped_from]
    more = max(len(retained) + 1 - MOST_ENTRIES, 0)
    if more < 2 or len(restates) < more:
        return retained
    # The oldest as one, of all the time that they are in, which nobody can call right.
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
    """A part of the table's time, and the entry that its rows are of."""

    from_us: int  # BEGINNING_US: from the beginning
    until_us: int
    entry: Entry


def segments_of(entries: Iterable[Entry]) -> list[Segment]:
    """The parts of the table's time that an entry covers, in order."""
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
    """What is left of a part under a later entry."""
    if segment.until_us <= from_us or until_us <= segment.from_us:
        return [segment]
    before = Segment(segment.from_us, min(segment.until_us, from_us), segment.entry)
    behind = Segment(max(segment.from_us, until_us), segment.until_us, segment.entry)
    return [part for part in (before, behind) if part.from_us < part.until_us]


# Totals in the record, and the counts of a batch that each adds up from a generation's first on.
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
    """SettingsError when one of these is another than the generation was made with."""
    for name, value in settings.items():
        if row[name] == value:
            continue
        way_out = "put that back, or make its state and its table anew from bronze"
        if name == "state_schema":
            way_out += (
                " (or with --migrate-state in place of --full-refresh, by the file's migrate_state)"
            )
        option = "" if name in CHANGE_NO_STATE else " --full-refresh"
        raise SettingsError(
            f"stream {row['stream']}: {name} is now {value}, but its state was made with {row[name]}: "
            f"{way_out}",
            code="settings_changed",
            subject=name,
            command=f"./stateful rebuild {row['stream']}{option} --apply",
        )


def refuse_new_code(record: StreamRecord, stream: Stream, code: str) -> None:
    """SettingsError when a run is the first by its code, and a person is to decide."""
    own = record.own
    if stream.on_code_change == "run" or own is None or code_of(own.codes[-1]) == code_of(code):
        return
    raise SettingsError(
        f"the code of {stream.name} is another than its newest run's, as `./stateful status "
        f"{stream.name}` says: make its table and state anew by it; or set on_code_change to run for "
        "one run, which goes on with the state of before",
        code="code_changed",
        subject=stream.name,
        command=f"./stateful rebuild {stream.name} --apply",
    )


def with_code(row: GenerationRow, code: str, event_schema: str) -> GenerationRow:
    """The row with a run's events, and since when its state is of more than one code."""
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


def begun_by(row: GenerationRow, record: StreamRecord, run_id: str, code: str) -> Entry:
    """The live entry that a run of the generation goes on with, or a new one (its number is 0)."""
    own, seed = record.own, row if is_rebuilt(row) else GenerationRow()
    new = Entry(
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
        codes=new.codes if is_same_code else (*own.codes, code),  # the state is of both
        from_us=own.from_us if row["output_mode"] == "update" else own.until_us,
        until_us=own.until_us,
        read_version=own.read_version,
        read_commit=own.read_commit,
        batch_id=record.batch_of(row["generation"]),
    )


def reached_by(lake: Lake, row: GenerationRow, own: Entry, batch_id: int) -> Entry:
    """The live entry with what is complete once a batch is committed, by its checkpoint."""
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    watermark_ms = batch_watermark_ms(lake, checkpoint, batch_id)
    until_us = None if watermark_ms is None else watermark_ms * US_PER_MS + 1
    if is_rebuilt(row):  # its seed has completed that much, whatever the batch brought
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
    """The record with a batch of the generation, and the totals after it."""
    assert record.own is not None  # it was begun
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    return replace(
        record.with_entry(reached_by(lake, row, record.own, batch_id)),
        plan=plan_hash(lake, checkpoint, batch_id),
        totals=totals,
    )


def added(totals: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """The watermark never goes back, and an empty batch moves nothing."""
    sums = {total: totals[total] + counts[name] for total, name in TOTALS.items()}
    known = [us for us in (totals[WATERMARK], counts[WATERMARK]) if us is not None]
    return sums | {WATERMARK: max(known, default=None)}


def totals_of(record: StreamRecord, row: GenerationRow | None) -> Mapping[str, Any]:
    """Totals of a generation's rows; before its first batch those that its seed stands for."""
    if row is not None and record.batch_of(row["generation"]) is not None:
        return record.totals
    none: dict[str, Any] = {**dict.fromkeys(TOTALS, 0), WATERMARK: None}
    if row is None or not is_rebuilt(row):
        return none
    folded, excluded, pending = (
        row["seed_events"],
        row["seed_before_initial_state"],
        row["seed_pending"],
    )
    return none | {
        "total_in": folded + excluded + pending,
        "total_folded": folded,
        "total_before_initial_state": excluded,
        "rows_pending": pending,
    }


RECORDS, WITHOUT_FILE = "num_records", "null_count.source_file"


def check_rows_add_up(lake: Lake, record: StreamRecord, row: GenerationRow) -> None:
    """RowCountError unless bronze has as many rows as the newest batch has read up to, and each is
    folded, late, excluded, duplicate or pending."""
    own = record.own
    if own is None or own.read_version is None or record.batch_of(row["generation"]) is None:
        return
    version, bronze = own.read_version, lake.bronze(row["source"])
    in_bronze = count_events(lake, bronze, version)
    totals = totals_of(record, row)
    done = {name: totals[name] for name in TOTALS if name != "total_in"}
    if not in_bronze == totals["total_in"] == sum(done.values()):
        raise RowCountError(
            f"stream {row['stream']}: {bronze} has {counted(in_bronze, 'event')} up to version "
            f"{version}, but {totals['total_in']} were read, and {sum(done.values())} accounted for "
            f"({done}). The table cannot be trusted: keep the lake as it is; or make table and state "
            "anew from bronze",
            subject=row["stream"],
            command=f"./stateful rebuild {row['stream']} --full-refresh --apply",
        )


def rows_unread(lake: Lake, record: StreamRecord, row: GenerationRow | None, source: str) -> int:
    """The events of bronze that no batch of the stream has read yet."""
    path = lake.bronze(source)
    read = totals_of(record, row)["total_in"]
    return int(count_events(lake, path, open_table(path).version()) - read)


def count_events(lake: Lake, bronze: str, version: int) -> int:
    """The rows of a version of bronze but heartbeats, which alone have no source file.

    LakeError when the log's clean-up has taken the version away.
    """
    table = open_rows_of(lake, bronze, version)
    files = pa.table(table.get_add_actions(flatten=True))
    if not files.num_rows:
        return 0
    names = set(files.column_names)
    if not {RECORDS, WITHOUT_FILE} <= names or files[WITHOUT_FILE].null_count:
        # Delta has none past a table's 32nd column, nor where someone's rewriting left none:
        # count the rows themselves.
        rows = table.to_pyarrow_dataset(filesystem=files_of(bronze))
        return int(rows.count_rows(filter=~pc.field("is_heartbeat")))
    return int(pc.sum(files[RECORDS]).as_py() - pc.sum(files[WITHOUT_FILE]).as_py())
