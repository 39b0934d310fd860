"""The clock of bronze: how far it stands, and the clock rows that move it on. Read without a JVM.

When a source falls silent, no watermark moves and no timeout fires. So an ingest run of a
source with a `clock_grace` may end with a clock row, which says: all that happened until
then has landed. Where that is known to be untrue the row is held back, as what lands after
it may be late. The Dag and the job decide alike, here.
"""

from datetime import datetime
from typing import NamedTuple

from pyarrow import fs

from include.fold.admission import EPOCH, US_PER_MS, instant_of
from include.lake.paths import Lake
from include.landing.clock_repair import is_reset_missing
from include.landing.ingest_log import Clock, has_to_mend, read_log
from include.landing.origin import behind, has_arrived, place_of
from include.registry import streams_of
from include.settings import MILLISECOND, Source

# A producer that knows it is behind puts a file of this name directly in landing/<source>.
LAGGING = "_lagging"


class ClockPlan(NamedTuple):
    """What a clock row would raise the watermark to, None for no row; and why."""

    target_us: int | None
    why: str
    is_bounded: bool = False  # by max_clock_step: it would go further


def why_not_ingest(
    lake: Lake, source: Source, interval_end: datetime | None, now: datetime
) -> str | None:
    """Why an ingest run would change nothing; None when it would, or when only it can tell."""
    if has_arrived(lake, source):
        return None
    if has_to_mend(lake, source):
        return None  # the run goes on with it, or fails and says so
    if is_reset_missing(lake, source.name):
        return None  # as above
    nothing_new = f"nothing new in {place_of(source)}"
    if source.clock_grace is None:
        return nothing_new
    logged = read_log(lake, source.name)
    clock = Clock() if logged is None else logged.clock(source)
    has_seed, lag = has_initial_state(lake, source), lagging_producer(lake, source)
    plan = plan_clock_row(
        source, clock.watermark_us, has_seed, lag=lag, interval_end=interval_end, now=now
    )
    return f"{nothing_new}, and no clock row: {plan.why}" if plan.target_us is None else None


def plan_clock_row(
    source: Source,
    watermark_us: int | None,
    has_seed: bool,
    lag: str | None,
    interval_end: datetime | None,
    now: datetime,
) -> ClockPlan:
    """Whether to write a clock row, from what is known alone.

    `has_seed`: a stream of the source has an initial state. `lag`: how landing is known to be
    behind. An `interval_end` in the future, or none, counts as `now`.

    No row raises the watermark by more than the source's `max_clock_step`; the next run goes on
    from there. So the first runs after a pause of weeks catch up step by step, and a run under
    a clock that is years ahead makes rows late that come less than one step behind, and no others.
    Only the row before any data has nothing to be held against.
    """
    if source.clock_grace is None:
        return ClockPlan(None, f"source {source.name} has no clock_grace")
    if watermark_us is None and not has_seed:
        # Whatever lands first may be old: behind a clock row all of it would be late.
        why = f"bronze/{source.name} has no data yet, and no stream of it an initial state"
        return ClockPlan(None, why)
    end = now if interval_end is None else min(interval_end, now)
    target_us = (end - EPOCH - source.clock_grace) // MILLISECOND * US_PER_MS
    if watermark_us is not None and target_us <= watermark_us:
        why = f"the watermark of bronze/{source.name} is at {as_text(watermark_us)} already"
        return ClockPlan(None, why)
    if lag is not None:
        return ClockPlan(None, f"it is held back, as {lag}")
    step = source.max_clock_step
    if watermark_us is not None and step is not None:
        most_us = watermark_us + step // MILLISECOND * US_PER_MS
        if most_us < target_us:
            why = (
                f"of {source.name} all until {as_text(target_us)} should have landed, but one run "
                f"moves the watermark on by at most {step} (max_clock_step)"
            )
            return ClockPlan(most_us, why, is_bounded=True)
    return ClockPlan(target_us, f"all of {source.name} until {as_text(target_us)} has landed")


def as_text(micros: int) -> str:
    """An instant for people."""
    return instant_of(micros).isoformat(timespec="milliseconds")


def landing_lag(lake: Lake, source: Source) -> str | None:
    """How landing is known to be behind once it has been drained; None when it is not."""
    return behind(lake, source) or lagging_producer(lake, source)


def lagging_producer(lake: Lake, source: Source) -> str | None:
    """What a producer's marker file says; None without one."""
    if not _exists(lake, f"{lake.landing(source.name)}/{LAGGING}"):
        return None
    return f"landing/{source.name}/{LAGGING} says that a producer is behind"


def has_initial_state(lake: Lake, source: Source) -> bool:
    """Whether a stream of the source starts from a savepoint 0, a table or a file."""
    return any(
        lake.is_delta_table(lake.initial_state(stream.name))
        or _exists(lake, lake.initial_state_file(stream.name))
        for stream in streams_of(source.name)
    )


def _exists(lake: Lake, path: str) -> bool:
    info = lake.filesystem.get_file_info(lake.path_in_filesystem(path))
    return bool(info.type != fs.FileType.NotFound)
