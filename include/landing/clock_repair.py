"""Repairs of a wrong clock, `ops/clock_repairs`: what was set back, and who has to wait for it.

One row under a wrong machine clock, or one producer far ahead, raises the clock of bronze (M,
see include/landing/clock.py), and what all others send is late. A repair sets M back by one commit of
bronze, and reseeds the source's streams to what that settles. State from before that commit has
settled more: it would meet rows that it takes for folded. So a stream runs only on a state
that knows all of bronze up to the newest such commit.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from include.fold.instants import instant_of, micros_of
from include.lake.delta_log import read_actions
from include.lake.generations import GenerationRow, current_row
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake, LakeError
from include.savepoints.bronze_pin import pin_bronze
from include.streams import STREAMS, Stream

KEY = ("source", "repair")


@dataclass(frozen=True)
class ClockRepair:
    """A row of `ops/clock_repairs`, instants in microseconds."""

    source: str
    repair: int  # from 1
    to_us: int  # what M is set back to
    from_us: int  # M before
    bronze_id: str
    reset_version: int | None  # of bronze; None: its commit is not made yet, or not recorded
    reset_at_us: int | None  # `ingested_at` of that commit
    is_done: bool  # every stream was reseeded


def app_id(source: str) -> str:
    """Names the commits that set the source's clock back; their version is the repair's number."""
    return f"repair/{source}"


def newest_repair(lake: Lake, source: str) -> ClockRepair | None:
    """The newest repair of the bronze that is there now; None when there was none."""
    rows = read_ops(lake, "clock_repairs", {"source": source}).to_pylist()
    if not rows or not lake.is_delta_table(lake.bronze(source)):
        return None
    bronze_id = str(DeltaTable(lake.bronze(source)).metadata().id)
    known = [_of_row(row) for row in rows if row["bronze_id"] == bronze_id]
    return max(known, key=lambda repair: repair.repair, default=None)


def open_repair(lake: Lake, source: str) -> ClockRepair | None:
    """The repair that was begun and not finished; None when there is none."""
    newest = newest_repair(lake, source)
    return None if newest is None or newest.is_done else newest


def _of_row(row: dict[str, Any]) -> ClockRepair:
    return ClockRepair(
        row["source"],
        row["repair"],
        micros_of(row["to"]),
        micros_of(row["from"]),
        row["bronze_id"],
        row["reset_version"],
        None if row["reset_at"] is None else micros_of(row["reset_at"]),
        row["done_at"] is not None,
    )


# What a repair records


def begin_repair(lake: Lake, source: str, to_us: int, from_us: int, bronze_id: str) -> ClockRepair:
    """Write the intent. From then on nothing but the repair commits to bronze, or runs."""
    rows = read_ops(lake, "clock_repairs", {"source": source}).to_pylist()
    number = 1 + max((row["repair"] for row in rows), default=0)
    row = {
        "source": source,
        "repair": number,
        "to": instant_of(to_us),
        "from": instant_of(from_us),
        "asked_at": datetime.now(UTC),
        "bronze_id": bronze_id,
    }
    append_ops(lake, "clock_repairs", [row], (app_id(source), number))
    return ClockRepair(source, number, to_us, from_us, bronze_id, None, None, is_done=False)


def record_reset(lake: Lake, repair: ClockRepair, version: int) -> None:
    """M is set back: by that version of bronze, after which nothing has been ingested yet."""
    reset_at = instant_of(pin_bronze(lake, repair.source).ingested_at_us)
    _update(lake, repair, {"reset_version": version, "reset_at": reset_at})


def record_done(lake: Lake, repair: ClockRepair) -> None:
    """Every stream of the source is reseeded."""
    _update(lake, repair, {"done_at": datetime.now(UTC)})


def _update(lake: Lake, repair: ClockRepair, columns: dict[str, Any]) -> None:
    key = {"source": repair.source, "repair": repair.repair}
    update_ops(lake, "clock_repairs", KEY, [key | columns])


def committed_reset(lake: Lake, repair: ClockRepair) -> int | None:
    """The version of bronze that set M back for this repair; None: it is not made yet.

    Looked for in the log, from its end: nothing but maintenance commits after it until then.
    """
    path = lake.bronze(repair.source)
    log, name = DeltaTable(path), app_id(repair.source)
    if log.transaction_version(name) != repair.repair:
        return None
    made = {"appId": name, "version": repair.repair}
    for version in range(log.version(), -1, -1):
        if any(made.items() <= a.get("txn", {}).items() for a in read_actions(lake, path, version)):
            return version
    raise LakeError(f"{path} has set its clock back, but its log has no such commit")


# Who has to wait


def repaired_streams(lake: Lake, source: str) -> list[tuple[Stream, GenerationRow]]:
    """The streams that a repair reseeds, with their current generations: those that ever ran."""
    known = [(s, current_row(lake, s.name)) for s in STREAMS if s.source == source]
    return [(stream, row) for stream, row in known if row is not None]


def knows_reset(row: GenerationRow | None, repair: ClockRepair) -> bool:
    """Whether a generation began with all of bronze up to the commit that set M back.

    One that a first run began never does: in its first batch it would read both what M was
    and what it is now.
    """
    if row is None or repair.reset_version is None or row["bronze_version"] is None:
        return False
    same = bool(row["bronze_id"] == repair.bronze_id)
    return same and int(row["bronze_version"]) >= repair.reset_version


def unknown_reset_us(lake: Lake, source: str, row: GenerationRow | None) -> int | None:
    """Since when (`ingested_at`) M is another than what a generation's state goes by; None: never.

    What has come since may be in time by the clock of now, and behind what that state has settled.
    """
    repair = newest_repair(lake, source)
    return None if repair is None or knows_reset(row, repair) else repair.reset_at_us


def why_not_run(lake: Lake, stream: Stream) -> str | None:
    """Why the state of `stream` must not be moved on now, and what to do; None: nothing stops it."""
    repair = newest_repair(lake, stream.source)
    if repair is None or knows_reset(current_row(lake, stream.name), repair):
        return None
    if not repair.is_done:
        return _is_open(repair, f"{stream.name} waits for it")
    return (
        f"the clock of bronze/{repair.source} was set back by its version {repair.reset_version}, "
        f"and the state of {stream.name} is not from after that: make it anew from bronze: `make "
        f"reseed STREAM={stream.name} APPLY=1`"
    )


def refuse_run(lake: Lake, stream: Stream) -> None:
    """LakeError when the state of `stream` must not be moved on now. Under its lease."""
    why = why_not_run(lake, stream)
    if why is not None:
        raise LakeError(why)


def is_reset_missing(lake: Lake, source: str) -> bool:
    """Whether a repair has begun, and M is not known to be set back yet."""
    repair = newest_repair(lake, source)
    return repair is not None and repair.reset_version is None


def refuse_before_reset(lake: Lake, source: str, what: str) -> None:
    """LakeError while `is_reset_missing`: what is committed or read until then goes by the old M.

    `what` waits, for people. Under the source's or the stream's lease.
    """
    repair = newest_repair(lake, source)
    if repair is not None and repair.reset_version is None:
        raise LakeError(_is_open(repair, f"{what} waits for it"))


def _is_open(repair: ClockRepair, who: str) -> str:
    return (
        f"a repair of the clock of {repair.source} was begun and is not finished, and {who}: finish "
        f"it: `make repair-clock SOURCE={repair.source} APPLY=1`"
    )
