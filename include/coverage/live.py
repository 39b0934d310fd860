"""How a run of a stream moves its record on, batch by batch; what its generation is pinned to; the totals of its rows.

Spark pins the number of state partitions by itself, silently, and knows nothing of buckets:
under another number keys would look for their states where they are not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include.checkpoint.committed_batch import (
    batch_watermark_ms,
    plan_hash,
    read_position,
)
from include.coverage.record import Entry, StreamRecord
from include.fold.admission import US_PER_MS, micros_of
from include.lake.delta_log import commit_hash, open_rows_of, table_to_read
from include.lake.errors import RowCountError
from include.lake.generations import GenerationRow, is_reseeded
from include.lake.paths import Lake, files_of
from include.lake.table import Table
from include.savepoints.manifest import same_code, serves
from include.settings import SettingsError, Stream
from include.text_table import counted

# Columns of ops/batches that add up others, from a generation's first batch on.
TOTALS = {
    "total_in": "rows_in",
    "total_folded": "rows_folded",
    "total_late": "rows_late",
    "total_excluded": "rows_excluded",
    "total_duplicate": "rows_duplicate",
}
# Levels, and what a batch changes them by.
LEVELS = {"rows_pending": "pending_change", "kept_without_timeout": "kept_change"}
WATERMARK = "watermark_us"


# A savepoint made under another one of these still serves a reseed.
CHANGE_NO_STATE = ("buckets", "state_partitions", "watermark_delay_ms")


def refuse_other_settings(row: GenerationRow, settings: dict[str, Any]) -> None:
    """SettingsError when one of these is another than the generation was made with: who reads its state
    by the file of now would read something else, or nothing."""
    for name, value in settings.items():
        if row[name] != value:
            raise _changed(row, name, now=value)


def refuse_new_code(record: StreamRecord, stream: Stream, code: str) -> None:
    """SettingsError when a run would be the first by its code, and its entry wants a person to decide."""
    own = record.own
    if stream.on_code_change == "run" or own is None or serves(own.codes[-1], code):
        return
    if not same_code(own.codes[-1], code):
        raise SettingsError(
            f"the code of {stream.name} is another than its newest run's, as `./stateful status "
            f"{stream.name}` says: make its table and state anew by it; or set on_code_change to run for "
            "one run, which goes on with the state of before",
            code="code_changed",
            subject=stream.name,
            command=f"./stateful reseed {stream.name} --apply",
        )


def with_code(row: GenerationRow, code: str, event_schema: str) -> GenerationRow:
    """The row with what is new with a run: its events, and the state's code.

    With new code the state is no one code's any more.
    """
    new: dict[str, Any] = {"event_schema": event_schema}
    known = row["code"]
    if row["code_changed_at"] is None and known is not None and not same_code(known, code):
        # It keeps dead letters from now on, or the state is of another code, too.
        new |= {"code": code} if serves(known, code) else {"code_changed_at": datetime.now(UTC)}
    return GenerationRow({**row, **new})


def _changed(row: GenerationRow, setting: str, now: Any) -> SettingsError:
    way_out = "put that back, or make its state and its table anew from bronze"
    if setting == "state_schema":
        way_out += " (or with --from-state in place of --recompute, by the file's migrate_state)"
    option = "" if setting in CHANGE_NO_STATE else " --recompute"
    return SettingsError(
        f"stream {row['stream']}: {setting} is now {now}, but its state was made with {row[setting]}: "
        f"{way_out}",
        code="settings_changed",
        subject=setting,
        command=f"./stateful reseed {row['stream']}{option} --apply",
    )


def commit_alone(lake: Lake, record: StreamRecord) -> None:
    """Commit a record without a row."""
    table = Table.open(lake, lake.table(record.stream))
    table.record()
    table.commit([], record.as_json())


def begun_by(row: GenerationRow, record: StreamRecord, run_id: str, code: str) -> Entry:
    """The live entry that a run of the generation goes on with, or a new one (its number is 0).

    A state that another code goes on with is of both.
    """
    own, codes = record.own, tuple[str, ...]([code])
    if own is None:
        return _entry(row, None, run_id=run_id, codes=codes)
    same_delay = own.delay_us == row["watermark_delay_ms"] * US_PER_MS
    if own.codes[-1] != code:
        codes = (*own.codes, code)
    elif own.kind == "live" and same_delay:
        return own
    from_us = own.from_us if row["output_mode"] == "update" else own.until_us
    return replace(
        _entry(row, from_us, run_id=run_id, codes=codes),
        until_us=own.until_us,
        read_version=own.read_version,
        read_commit=own.read_commit,
        batch_id=record.batch_of(row["generation"]),
    )


def _entry(row: GenerationRow, from_us: int | None, run_id: str, codes: tuple[str, ...]) -> Entry:
    reseeded = is_reseeded(row)
    return Entry(
        kind="live",
        from_us=from_us,
        generation=row["generation"],
        run_id=run_id,
        delay_us=row["watermark_delay_ms"] * US_PER_MS,
        codes=codes,
        bronze_id=row["bronze_id"],
        bronze_version=row["bronze_version"] if reseeded else None,
        bronze_ingested_at_us=micros_of(row["bronze_ingested_at"]) if reseeded else None,
    )


def reached_by(lake: Lake, row: GenerationRow, own: Entry, batch_id: int) -> Entry:
    """The live entry with what is settled once a batch is committed, by the log of its checkpoint."""
    checkpoint = lake.checkpoint(row["stream"], row["generation"])
    watermark_ms = batch_watermark_ms(lake, checkpoint, batch_id)
    until_us = None if watermark_ms is None else watermark_ms * US_PER_MS + 1
    if is_reseeded(row):  # its seed has settled that much, whatever the batch brought
        until_us = max(micros_of(row["until"]), until_us or micros_of(row["until"]))
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


@dataclass
class LiveRecord:
    """The record of a stream while a run of it goes on."""

    lake: Lake
    record: StreamRecord
    row: GenerationRow  # of the generation, with what is new with the run
    code: str
    run_id: str
    at_start: Mapping[str, Any]  # totals before the generation's first batch

    def begin(self) -> StreamRecord:
        """The record with the run's own entry. What is new with that is committed before any row of it."""
        own = begun_by(self.row, self.record, run_id=self.run_id, code=self.code)
        if own.number == 0 or self.record.row != self.row:
            is_going_on = self.record.batch_of(self.row["generation"]) is not None
            self.record = replace(self.record, row=self.row).with_entry(own)
            if is_going_on:
                commit_alone(self.lake, self.record)
        return self.record

    def is_of_new_code(self) -> bool:
        """Whether the run is the first whose code is not that of its generation, before it begins."""
        known = self.record.row
        return known is not None and known["code_changed_at"] != self.row["code_changed_at"]

    def totals(self) -> Mapping[str, Any]:
        """After the newest batch."""
        return totals_of(self.record, self.row["generation"], self.at_start)

    def after(
        self, batch_id: int, counts: Mapping[str, Any], dead_letters: Mapping[str, Any]
    ) -> StreamRecord:
        """The record of a batch, which may have been made before."""
        row, record = self.row, self.begin()
        own, written = record.own, record.batch_of(row["generation"])
        assert own is not None  # it was begun
        checkpoint = self.lake.checkpoint(row["stream"], row["generation"])
        if written is not None and written >= batch_id:
            return record
        return replace(
            record.with_entry(reached_by(self.lake, row, own, batch_id)),
            plan=plan_hash(self.lake, checkpoint, batch_id),
            totals=_added(self.totals(), counts),
            **dead_letters,
        )


def _added(totals: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """The watermark never goes back, and an empty batch moves nothing."""
    sums = {total: totals[total] + counts[name] for total, name in (TOTALS | LEVELS).items()}
    known = [us for us in (totals[WATERMARK], counts[WATERMARK]) if us is not None]
    return sums | {WATERMARK: max(known, default=None)}


def totals_of(
    record: StreamRecord, generation: int, at_start: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Totals of a generation's rows; before its first batch those that it began with."""
    return at_start if record.batch_of(generation) is None else record.totals


def seed_totals(row: GenerationRow | None, kept: int = 0) -> dict[str, Any]:
    """Totals before a generation's first batch; `kept`: states that nothing but an event will wake.

    0 but for a reseeded one: its seed stands for bronze rows, and brings some that wait.
    """
    none: dict[str, Any] = {**dict.fromkeys([*TOTALS, *LEVELS], 0), WATERMARK: None}
    none["kept_without_timeout"] = kept
    if row is None or not is_reseeded(row):
        return none
    folded, excluded, pending = row["seed_events"], row["seed_excluded"], row["seed_pending"]
    return none | {
        "total_in": folded + excluded + pending,
        "total_folded": folded,
        "total_excluded": excluded,
        "rows_pending": pending,
    }


RECORDS, WITHOUT_FILE = "num_records", "null_count.source_file"


def check_rows_add_up(lake: Lake, record: StreamRecord, row: GenerationRow) -> None:
    """Raise RowCountError unless all rows that the newest batch has read up to are accounted for.

    Read by the stream = rows of bronze up to its position, and
    read = folded + late + excluded + duplicate + pending.
    """
    own = record.own
    if own is None or own.read_version is None or record.batch_of(row["generation"]) is None:
        return
    version = own.read_version
    bronze = lake.bronze(row["source"])
    in_bronze = count_events(lake, bronze, version)
    totals = totals_of(record, row["generation"], seed_totals(row))
    done = {name: totals[name] for name in (*TOTALS, "rows_pending") if name != "total_in"}
    if not in_bronze == totals["total_in"] == sum(done.values()):
        raise RowCountError(
            f"stream {row['stream']}: {bronze} has {counted(in_bronze, 'event')} up to version "
            f"{version}, but {totals['total_in']} were read, and {sum(done.values())} accounted for "
            f"({done}). The table cannot be trusted: keep the lake as it is; or make table and state "
            "anew from bronze",
            subject=row["stream"],
            command=f"./stateful reseed {row['stream']} --recompute --apply",
        )


def rows_unread(lake: Lake, record: StreamRecord, row: GenerationRow | None, source: str) -> int:
    """The events of bronze that no batch of the stream has read yet."""
    path = lake.bronze(source)
    generation = 0 if row is None else row["generation"]
    read = totals_of(record, generation, seed_totals(row))["total_in"]
    return int(count_events(lake, path, table_to_read(path).version()) - read)


def count_events(lake: Lake, bronze: str, version: int) -> int:
    """The rows of a version of a bronze table that are no clock rows.

    By the statistics in the table's log: only clock rows have no source file. LakeError when the
    log's clean-up has taken the version away.
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
        return int(rows.count_rows(filter=~pc.field("is_clock")))
    return int(pc.sum(files[RECORDS]).as_py() - pc.sum(files[WITHOUT_FILE]).as_py())
