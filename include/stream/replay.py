"""A replay of bronze from a base, planned: what the plans of a recompute and of a reseed have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import ClassVar, Literal

from include.fold.admission import US_PER_MS
from include.fold.definition import KeyedFold
from include.lake.dead_letters import dead_letters_now
from include.lake.delta_log import commit_hash
from include.lake.errors import SettingsError
from include.lake.generations import GenerationRow
from include.lake.paths import Lake
from include.lake.stream_result import replaced_by
from include.stream.bronze_pin import BronzePin
from include.stream.manifest import Base, Savepoint, StreamIdentity, mapped_savepoint
from include.stream.open_stream import OpenStream
from include.stream.record import Entry, StreamRecord


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Pinned bronze folded anew from a base until an instant, for the table's rows from another on."""

    origin: ClassVar[Literal["recompute", "reseed"]]
    opened: OpenStream
    pin: BronzePin
    base: Base
    until_us: int

    @property
    def lake(self) -> Lake:
        return self.opened.lake

    @property
    def fold(self) -> KeyedFold:
        return self.opened.fold

    @property
    def code(self) -> str:
        """What its states come of."""
        return self.base.lineage(self.opened.identity.code)

    @property
    def row(self) -> GenerationRow:
        """Of the generation that its rows are of."""
        raise NotImplementedError

    @property
    def from_us(self) -> int | None:
        """The first instant whose rows are replaced; None: all are."""
        raise NotImplementedError

    @property
    def end_us(self) -> int | None:
        """Before which instant rows are replaced. A reseed's have no end: what live has emitted beyond
        `until_us` it will emit again."""
        return self.until_us if self.origin == "recompute" else None

    @property
    def dead_letters_from_us(self) -> int | None:
        """From which instant on dead letters are replaced: an update table shows one state, they do not."""
        if self.origin == "recompute":
            return self.from_us
        return self.base.until_us if self.base.savepoint else None

    def record(self, run_id: str, savepoint: Savepoint) -> StreamRecord:
        """The stream's once its rows are there; after a reseed live goes on from the savepoint at their end."""
        row, base, pin = self.row, self.base, self.pin
        if self.origin == "reseed":
            seed = {"seed_savepoint": savepoint.savepoint_id, "seed_events": savepoint.events}
            row = GenerationRow({**row, **seed, "switched_at": datetime.now(UTC)})
        entry = Entry(
            kind=self.origin,
            from_us=self.from_us,
            until_us=self.until_us,
            generation=row["generation"],
            run_id=run_id,
            delay_us=row["watermark_delay_ms"] * US_PER_MS,
            codes=(self.code,),
            bronze_id=pin.table_id,
            bronze_version=pin.version,
            bronze_ingested_at_us=pin.ingested_at_us,
            read_version=pin.version,
            read_commit=commit_hash(self.lake, pin.path, pin.version),
            mapped_from=base.savepoint.code if base.mapped and base.savepoint else None,
        )
        dead_letters = dead_letters_now(self.lake, self.opened.name)
        return replace(self.opened.record, row=row, **dead_letters).with_entry(entry)


def base_text(base: Base) -> str:
    """Where a replay begins, for people."""
    if base.savepoint is not None:
        return f"savepoint {base.savepoint.savepoint_id}"
    return "the beginning" if base.until_us is None else "the initial state"


def refuse_before_mapping(identity: StreamIdentity, base: Base) -> None:
    """SettingsError when only the beginning is left, and the stream's states do not come of it."""
    if base.savepoint is None and mapped_savepoint(identity.code):
        raise SettingsError(
            f"the states of {identity.stream} were mapped by migrate_state, and no clean savepoint of "
            "theirs is early enough: all can be made anew by the code of now, which gives them up",
            code="mapped_state",
            subject=identity.stream,
            command=f"./stateful reseed {identity.stream} --recompute --apply",
        )


def seconds_for(lake: Lake, stream: str, rows: Sequence[int]) -> list[float | None]:
    """What replays of so many rows would take, by the recorded ones of the stream; None without any."""
    recorded = [
        (row["rows_in"], (row["ended_at"] - row["started_at"]).total_seconds())
        for row in replaced_by(lake, stream)
        if row["ended_at"] > row["started_at"]
    ]
    if not recorded:
        return [None] * len(rows)
    typical = float(median(seconds for _, seconds in recorded))
    rate = max(read / seconds for read, seconds in recorded)
    return [max(typical, count / rate) if rate else typical for count in rows]
