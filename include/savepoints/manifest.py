"""The manifest of savepoints, `ops/savepoints`: which there are, and what each one holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from include.fold.admission import MICROSECOND, micros_of
from include.fold.deduplicate import SEEN
from include.fold.definition import KeyedFold
from include.fold.group_state import TIMERS
from include.lake.columns import Column, columns_of, create_if_absent, documented, found_columns
from include.lake.delta_log import open_table
from include.lake.errors import StatefulError
from include.lake.ops import read_ops, update_ops
from include.lake.paths import Lake
from include.settings import SavepointRules


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """A savepoint whose rows are there: the columns of `ops/savepoints`, instants in microseconds."""

    savepoint_id: str
    stream: str
    until_us: int
    origin: str
    path: str  # below the lake
    keys: int
    checksum: str
    events: int
    bronze_id: str
    bronze_ingested_at_us: int | None  # of the newest row that it has read
    bronze_version: int  # read up to
    code: str | None
    state_schema: str
    created_at: datetime

    def is_older(self, bronze_id: str, version: int) -> bool:
        """Whether it is of another bronze, or of what this one was before a version."""
        return self.bronze_id != bronze_id or self.bronze_version < version


def savepoints_of(lake: Lake, stream: str) -> list[Savepoint]:
    """The savepoints of `stream` that are there, by `until`; of the same one, the newest last."""
    rows = read_ops(lake, "savepoints", {"stream": stream}).to_pylist()
    rows.sort(key=lambda row: (row["until"], row["created_at"]))
    return [_of_row(row) for row in rows if row["deleted_at"] is None]


def _of_row(row: Mapping[str, Any]) -> Savepoint:
    read = row["bronze_ingested_at"]
    instants = {
        "until_us": micros_of(row["until"]),
        "bronze_ingested_at_us": None if read is None else micros_of(read),
    }
    named = {name: row[name] for name in Savepoint.__dataclass_fields__ if name not in instants}
    return Savepoint(**(named | instants))


def struck_off_at(lake: Lake, stream: str) -> dict[str, datetime | None]:
    """All savepoints of `stream` that ever were, and when each was struck off; None: never."""
    rows = read_ops(lake, "savepoints", {"stream": stream}).to_pylist()
    return {row["savepoint_id"]: row["deleted_at"] for row in rows}


def mark_deleted(lake: Lake, savepoint_ids: list[str]) -> None:
    """Say that the rows of these savepoints are about to be deleted: before they are."""
    now = datetime.now(UTC)
    rows = [{"savepoint_id": name, "deleted_at": now} for name in savepoint_ids]
    update_ops(lake, "savepoints", ["savepoint_id"], rows)


def is_due(rules: SavepointRules, until_us: int, savepoints: list[Savepoint]) -> bool:
    """Whether a run that has come to `until_us` is to write a savepoint.

    When it has passed a multiple of the cadence since the newest one, or when there is none.
    """
    if rules.cadence is None:
        return False
    newest_us = max((savepoint.until_us for savepoint in savepoints), default=None)
    cadence_us = rules.cadence // MICROSECOND
    return newest_us is None or until_us // cadence_us > newest_us // cadence_us


class SavepointError(StatefulError):
    """The rows of a savepoint are not those that its manifest describes, and never will be."""

    code = "unreadable_savepoint"
    exit_code = 1


class Contents(NamedTuple):
    """What a savepoint's rows come to."""

    keys: int
    checksum: str


@dataclass(frozen=True, kw_only=True)
class StreamIdentity:
    """A stream as its file and entry are now. Made by `include/plans/stream_identity.py`."""

    stream: str
    source: str
    output_mode: Literal["append", "update"]
    time_column: Literal["event_time", "ingested_at"]  # of bronze: the fold's clock
    delay_us: int  # of the watermark
    # Fingerprint of the stream's file, its settings and its initial state: a savepoint with
    # another one holds another fold's state.
    code: str
    state_schema: str
    # `as_of` of the initial state: earlier bronze rows are not folded. None without one.
    since_us: int | None


MAPPED_FROM = "+"
REJECTS = "!"


def code_of(lineage: str) -> str:
    """The fingerprint of the code alone."""
    return lineage.partition(MAPPED_FROM)[0]


def mapped_lineage(code: str, savepoint_id: str) -> str:
    """Of states that `code` makes from those of a savepoint of an older schema."""
    return f"{code_of(code)}{MAPPED_FROM}{savepoint_id}"


def is_mapped(lineage: str) -> bool:
    """Whether the states go back to a savepoint whose states were mapped."""
    return MAPPED_FROM in lineage


def mapped_savepoint(lineage: str) -> str | None:
    """The savepoint whose states were mapped; None where none were."""
    return lineage.partition(MAPPED_FROM)[2] or None


def has_mapped(row: Mapping[str, Any] | None) -> bool:
    """Whether those of a generation do, whose row of `ops/generations` this is."""
    return is_mapped((row or {}).get("code") or "")


def rejects(lineage: str) -> bool:
    """Whether a fold by that name goes on after a failed call."""
    return code_of(lineage).endswith(REJECTS)


def same_code(lineage: str | None, other: str | None) -> bool:
    """Whether the same code made them, whatever they go back to."""
    if lineage is None or other is None:
        return lineage == other
    return code_of(lineage) == code_of(other)


def serves(lineage: str | None, wanted: str) -> bool:
    """Whether whoever goes by the name `wanted` may go on with states of that `lineage`."""
    return lineage is not None and lineage in serving(wanted)


def serving(wanted: str) -> set[str]:
    """The lineages whose states serve whoever goes by the name `wanted`."""
    return {wanted, wanted.replace(REJECTS, "")}


def current_lineage(row: Mapping[str, Any] | None, code: str) -> str:
    """The lineage that a stream with this `code` goes on with: that of its current generation,
    whose row of `ops/generations` this is, if the same code made it."""
    if not row or row["code"] is None:
        return code
    known = str(row["code"])
    if same_code(known, code):
        return known
    if is_mapped(known) and serves(code_of(known), code):  # it rejects from now on
        return f"{code}{MAPPED_FROM}{known.partition(MAPPED_FROM)[2]}"
    return code


# What is stored beside a state, where the stream's fold has it.
BESIDE = {
    SEEN: "Values by which events are known as duplicates, and when they were first folded",
    TIMERS: "When each of its timers fires, in microseconds since 1970; null if it is not set",
}
# Readers without a JVM must be able to read the table.
PROPERTIES = {"delta.enableDeletionVectors": "false"}


def savepoint_table(lake: Lake, fold: KeyedFold) -> str:
    """The table for states of this kind, below the lake; it is made where it is not there yet.

    One of another kind, from before a migration, is left as it is, and the next number taken.
    """
    columns = savepoint_columns(fold)
    number = 1
    while True:
        path = f"savepoints/{fold.stream}" + (f"-{number}" if number > 1 else "")
        if not lake.is_delta_table(f"{lake.root}/{path}"):
            comment = f"{fold.stream}: its state as of past instants"
            create_if_absent(f"{lake.root}/{path}", columns, comment, PROPERTIES, ["savepoint_id"])
            return path
        if found_columns(open_table(f"{lake.root}/{path}")) == columns_of(documented(columns)):
            return path
        number += 1


def savepoint_columns(fold: KeyedFold) -> list[Column]:
    """The documented columns of a savepoint's table."""
    fields = ",".join(f"{column.name}:{column.kind}" for column in fold.state_columns)
    return [
        Column("savepoint_id", "string", "The savepoint; ops/savepoints has its manifest"),
        Column("until", "timestamp", "The state is that of all events before this, UTC"),
        Column("key", fold.keys.kind, "Key, with savepoint_id: whose state it is"),
        Column("state", f"struct<{fields}>", "The state; null for a key with only a timeout"),
        Column("changed_at", "timestamp", "When it last changed, on the stream's clock, UTC"),
        Column("timeout_at", "timestamp", "When it times out; null for never"),
        *(Column(column.name, column.kind, BESIDE[column.name]) for column in fold.beside),
    ]


def beside_in(columns: Iterable[str]) -> list[str]:
    """Which of the columns are BESIDE's."""
    return [name for name in columns if name in BESIDE]
