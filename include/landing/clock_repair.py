"""Repairs of a wrong clock (`ops/clock_repairs`), and the commits that set the clock of bronze back.

One row under a wrong machine clock, or one producer far ahead, raises the clock of bronze (M,
see include/landing/clock.py), and what all others send is late. A repair sets M back by one commit of
bronze, and reseeds the source's streams to what that settles. State from before that commit has
settled more: it would meet rows that it takes for folded. So a stream runs only on a state
that knows all of bronze up to the newest such commit.

The ingest log knows, too, which repairs have set it back, and when: of one whose row is lost
that is enough to tell who has not been reseeded since.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from include.fold.admission import instant_of, micros_of
from include.lake.delta_log import open_table
from include.lake.generations import GenerationRow, read_generations
from include.lake.ops import append_ops, read_ops, update_ops
from include.lake.paths import Lake, LakeError
from include.landing.erasures import why_wait
from include.landing.ingest_log import ClockReset, read_log, why_not_build
from include.registry import streams_of
from include.settings import Stream

KEY = ("source", "repair")


@dataclass(frozen=True)
class ClockRepair:
    """A row of `ops/clock_repairs`, instants in microseconds."""

    source: str
    repair: int  # from 1
    to_us: int  # what M is set back to
    from_us: int  # M before
    bronze_id: str
    reset_at_us: int | None  # `ingested_at` of its commit; None: not made, or not recorded
    is_done: bool  # every stream was reseeded; or its row is lost, and nobody will finish it

    @property
    def is_reset(self) -> bool:
        """Whether M is known to be set back."""
        return self.reset_at_us is not None


def newest_repair(lake: Lake, source: str) -> ClockRepair | None:
    """The newest repair of the bronze that is there now; None when there was none.

    Of one whose row is lost, what the ingest log knows.
    """
    if not lake.is_delta_table(lake.bronze(source)):
        return None
    bronze_id, resets = str(open_table(lake.bronze(source)).metadata().id), _resets(lake, source)
    rows = read_ops(lake, "clock_repairs", {"source": source}).to_pylist()
    known = [_of_row(row) for row in rows if row["bronze_id"] == bronze_id]
    newest = max(known, key=lambda repair: repair.repair, default=None)
    if not resets or (newest is not None and newest.repair >= resets[-1].repair):
        return newest
    # One of which only the log knows. Done: each stream says by itself that it must be reseeded.
    number, to_us, from_us, at_us = resets[-1]
    return ClockRepair(source, number, to_us, from_us, bronze_id, at_us, is_done=True)


def _resets(lake: Lake, source: str) -> list[ClockReset]:
    logged = read_log(lake, source)
    return [] if logged is None else logged.resets()


def open_repair(lake: Lake, source: str) -> ClockRepair | None:
    """The repair that was begun and not finished; None when there is none."""
    newest = newest_repair(lake, source)
    return None if newest is None or newest.is_done else newest


def _of_row(row: dict[str, Any]) -> ClockRepair:
    return ClockRepair(
        row["source"],
        row["repair"],
        micros_of(row["to"]),
        from_us=micros_of(row["from"]),
        bronze_id=row["bronze_id"],
        reset_at_us=None if row["reset_at"] is None else micros_of(row["reset_at"]),
        is_done=row["done_at"] is not None,
    )


# What a repair records
def begin_repair(lake: Lake, source: str, to_us: int, from_us: int, bronze_id: str) -> ClockRepair:
    """Write the intent. From then on nothing but the repair commits to bronze, or runs.

    Its number is above all that bronze has seen, too: under one of those it would set nothing back.
    """
    rows = read_ops(lake, "clock_repairs", {"source": source}).to_pylist()
    made = [reset.repair for reset in _resets(lake, source)]
    number = 1 + max([0, *made, *(row["repair"] for row in rows)])
    row = {
        "source": source,
        "repair": number,
        "to": instant_of(to_us),
        "from": instant_of(from_us),
        "asked_at": datetime.now(UTC),
        "bronze_id": bronze_id,
    }
    append_ops(lake, "clock_repairs", [row], (f"repair/{source}", number))
    return ClockRepair(
        source,
        number,
        to_us,
        from_us=from_us,
        bronze_id=bronze_id,
        reset_at_us=None,
        is_done=False,
    )


def record_reset(lake: Lake, repair: ClockRepair) -> None:
    """M is set back: by the newest batch that did so."""
    reset_at = instant_of(_resets(lake, repair.source)[-1].at_us)
    _update(lake, repair, {"reset_at": reset_at})


def record_done(lake: Lake, repair: ClockRepair) -> None:
    """Every stream of the source is reseeded."""
    _update(lake, repair, {"done_at": datetime.now(UTC)})


def _update(lake: Lake, repair: ClockRepair, columns: dict[str, Any]) -> None:
    key = {"source": repair.source, "repair": repair.repair}
    update_ops(lake, "clock_repairs", KEY, [key | columns])


# Who has to wait
def repaired_streams(lake: Lake, source: str) -> list[tuple[Stream, GenerationRow]]:
    """The streams that a repair reseeds, with their current generations: those that ever ran."""
    known = [(s, read_generations(lake, s.name).current) for s in streams_of(source)]
    return [(stream, row) for stream, row in known if row is not None]


def knows_reset(row: GenerationRow | None, repair: ClockRepair) -> bool:
    """Whether a generation began with all of bronze up to the commit that set M back.

    One that a first run began never does: in its first batch it would read both what M was
    and what it is now.
    """
    if row is None or repair.reset_at_us is None or row["bronze_ingested_at"] is None:
        return False
    # Not by the version: of a repair whose row is lost only the instant is known for sure.
    same = bool(row["bronze_id"] == repair.bronze_id)
    return same and micros_of(row["bronze_ingested_at"]) >= repair.reset_at_us


def unknown_reset_us(lake: Lake, source: str, row: GenerationRow | None) -> int | None:
    """Since when (`ingested_at`) M is another than what a generation's state goes by; None: never.

    What has come since may be in time by the clock of now, and behind what that state has settled.
    """
    repair = newest_repair(lake, source)
    return None if repair is None or knows_reset(row, repair) else repair.reset_at_us


def why_not_run(lake: Lake, stream: Stream) -> str | None:
    """Why the state of `stream` must not be moved on now, and what to do; None: nothing stops it."""
    row = read_generations(lake, stream.name).current
    if why := why_wait(lake, stream.source, stream.name, row):
        return why
    if why := why_not_build(lake, stream.source, stream.name):
        return why
    repair = newest_repair(lake, stream.source)
    if repair is None or knows_reset(row, repair):
        return None
    if not repair.is_done:
        return f"{_is_open(repair, stream.name)}. Finish it: `{_finish(repair)}`"
    return (
        f"the clock of bronze/{repair.source} was set back to {instant_of(repair.to_us)}, and the "
        f"state of {stream.name} is not from after that: make it anew from bronze: `./stateful reseed "
        f"{stream.name} --apply`"
    )


def refuse_run(lake: Lake, stream: Stream) -> None:
    """LakeError when the state of `stream` must not be moved on now. Under its lease."""
    why = why_not_run(lake, stream)
    if why is not None:
        raise LakeError(why, code="unfinished_repair", subject=stream.name)


def is_reset_missing(lake: Lake, source: str) -> bool:
    """Whether a repair has begun, and M is not known to be set back yet."""
    repair = newest_repair(lake, source)
    return repair is not None and not repair.is_reset


def refuse_before_reset(lake: Lake, source: str, what: str) -> None:
    """LakeError while `is_reset_missing`: what is committed or read until then goes by the old M.

    And while bronze may have rows of a key that is being erased. `what` waits, for people. Under
    the source's or the stream's lease.
    """
    if why := why_wait(lake, source, what):
        raise LakeError(why, code="unfinished_erasure", subject=source)
    repair = newest_repair(lake, source)
    if repair is not None and not repair.is_reset:
        raise LakeError(
            _is_open(repair, what),
            code="unfinished_repair",
            subject=repair.source,
            command=_finish(repair),
        )


def _is_open(repair: ClockRepair, who: str) -> str:
    return f"a repair of the clock of {repair.source} was begun and is not finished, and {who} waits for it"


def _finish(repair: ClockRepair) -> str:
    return f"./stateful repair-clock {repair.source} --apply"
