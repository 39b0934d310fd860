"""Repairs of a wrong clock, and the commits that set the clock of bronze back.

One row under a wrong machine clock, or one producer far ahead, raises the clock of bronze (M,
see include/landing/clock.py), and what all others send is late. A repair sets M back by one commit of
bronze, and reseeds the source's streams to what that settles. State from before that commit has
settled more: it would meet rows that it takes for folded. So a stream runs only on a state
that knows all of bronze up to the newest such commit.

The ingest log has all that is known of it, in notes of batches: that it was begun, what set M back,
and that it is done.
"""

from include.fold.admission import instant_of, micros_of
from include.lake.generations import GenerationRow, read_generations
from include.lake.paths import Lake, LakeError
from include.landing.erasures import open_in, refuse_unerased, why_wait
from include.landing.ingest_log import (
    REPAIR_BEGUN,
    REPAIR_DONE,
    ClockRepair,
    Ingestion,
    read_log,
    why_not_build,
)
from include.registry import streams_of
from include.settings import Source, Stream


def newest_repair(lake: Lake, source: str) -> ClockRepair | None:
    """The newest repair of the bronze that is there now; None when there was none."""
    logged = read_log(lake, source)
    return None if logged is None else logged.repair(source)


def open_repair(lake: Lake, source: str) -> ClockRepair | None:
    """The repair that was begun and not finished; None when there is none."""
    newest = newest_repair(lake, source)
    return None if newest is None or newest.is_done else newest


def begin_repair(lake: Lake, source: Source, to_us: int) -> ClockRepair:
    """Log the intent. From then on nothing but the repair commits to bronze, or runs."""
    ingestion = Ingestion.open(lake, source)

    def begin() -> None:
        newest = ingestion.logged.repair(source.name)
        number = 1 if newest is None else newest.repair + 1
        ingestion.take_note({REPAIR_BEGUN: number, "to_us": to_us})

    ingestion.again(begin)
    begun = ingestion.logged.repair(source.name)
    assert begun is not None
    return begun


def end_repair(lake: Lake, source: Source, repair: ClockRepair) -> None:
    """Log that every stream of the source is reseeded."""
    ingestion = Ingestion.open(lake, source)
    ingestion.again(lambda: ingestion.take_note({REPAIR_DONE: repair.repair}))


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
    return micros_of(row["bronze_ingested_at"]) >= repair.reset_at_us


def why_not_run(lake: Lake, stream: Stream) -> LakeError | None:
    """Why no job may move the state of `stream` on now: a key of its source is being erased, others have
    changed bronze, or the source's clock is being set back. None: nothing stops it."""
    row, logged = read_generations(lake, stream.name).current, read_log(lake, stream.source)
    if why := why_wait(open_in(logged, stream.source), stream.name, row):
        return LakeError(why, code="unfinished_erasure", subject=stream.source)
    if error := why_not_build(lake, stream.source, stream.name):
        return error
    repair = None if logged is None else logged.repair(stream.source)
    if repair is None or knows_reset(row, repair):
        return None
    if not repair.is_done:
        return _open_error(repair, stream.name)
    return LakeError(
        f"the clock of bronze/{repair.source} was set back to {instant_of(repair.to_us)}, and the "
        f"state of {stream.name} is not from after that: make it anew from bronze",
        code="unfinished_repair",
        subject=stream.name,
        command=f"./stateful reseed {stream.name} --apply",
    )


def refuse_run(lake: Lake, stream: Stream) -> None:
    """Raise that. Under the stream's lease."""
    if error := why_not_run(lake, stream):
        raise error


def is_reset_missing(lake: Lake, source: str) -> bool:
    """Whether a repair has begun, and M is not known to be set back yet."""
    repair = newest_repair(lake, source)
    return repair is not None and not repair.is_reset


def refuse_before_reset(lake: Lake, source: str, what: str) -> None:
    """LakeError while `is_reset_missing`: what is committed or read until then goes by the old M.

    And while bronze may have rows of a key that is being erased. `what` waits, for people. Under
    the source's or the stream's lease.
    """
    logged = read_log(lake, source)
    refuse_unerased(logged, source, what)
    refuse_unset(None if logged is None else logged.repair(source), what)


def refuse_unset(repair: ClockRepair | None, what: str) -> None:
    """LakeError while the newest repair has not set M back."""
    if repair is not None and not repair.is_reset:
        raise _open_error(repair, what)


def _open_error(repair: ClockRepair, who: str) -> LakeError:
    return LakeError(
        f"a repair of the clock of {repair.source} was begun and is not finished, and {who} waits for it",
        code="unfinished_repair",
        subject=repair.source,
        command=f"./stateful repair-clock {repair.source} --apply",
    )
