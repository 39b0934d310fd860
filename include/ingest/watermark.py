"""The clock of bronze as each commit moves it on, and heartbeats.

M is the largest `least(event_time, ingested_at)` ever committed, floored to milliseconds, or of all
since a repair has set it back; of a source with groups the least that these have reached
(group_clock.py). Each commit stores it on its rows, before and after: whether a row is late must not
depend on anything read later. `ingested_at` is one instant for each commit, later than in every
earlier one even when the machine's clock goes back: streams in processing time fold by it.

When a source falls silent, no watermark moves and no timeout fires. So an ingest run of a source with
a `heartbeat_delay` may end with a heartbeat, which says: all that happened until then has landed.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

import pyarrow as pa

from include.catalogue import FINDINGS
from include.fold.admission import EPOCH, MICROSECOND, US_PER_MS, instant_of
from include.ingest.amendments import AMENDMENT, SET_WATERMARK, amendments_in
from include.ingest.group_watermark import floor_to_ms
from include.ingest.ingest_log import (
    KEEPALIVE,
    Ingestion,
    SourceWatermark,
    has_to_mend,
    read_done,
    read_log,
)
from include.ingest.parse_files import bronze_rows
from include.ingest.source_connector import connector_of, lag_of_run, place_of
from include.lake.delta_log import is_there
from include.lake.errors import LakeError
from include.lake.ops import Finding
from include.lake.paths import Lake
from include.registry import streams_of
from include.settings import MILLISECOND, Source


def read_watermark(ingestion: Ingestion) -> SourceWatermark:
    return ingestion.logged.clock(ingestion.source)


def advance_watermark(
    before: SourceWatermark, newest_us: int, now_us: int, groups: Mapping[str, int] | None = None
) -> SourceWatermark:
    """The clock after a commit, at `now_us`, of events up to `newest_us`, of `groups` up to theirs.

    Without these, of a heartbeat: a group that is not idle is believed more, and holds M back.
    """
    at_us = _ingested_at_after(before, now_us)
    reached_us, after = floor_to_ms(min(newest_us, at_us)), None
    if before.groups is not None:
        after = before.groups.after(groups or {}, before.ingested_at_us, at_us)
        awake = [us for us, _ in after.awake()]
        reached_us = min([*awake, reached_us] if groups is None else awake)
    if before.watermark_us is not None:
        reached_us = max(reached_us, before.watermark_us)
    return SourceWatermark(reached_us, at_us, after and after.without_passed(reached_us))


def set_watermark_back(before: SourceWatermark, to_us: int, now_us: int) -> SourceWatermark:
    """The clock after the commit, at `now_us`, of a repair that sets M back to `to_us`."""
    at_us, to_us = _ingested_at_after(before, now_us), floor_to_ms(to_us)
    if before.groups is None:
        return SourceWatermark(to_us, at_us)
    groups = before.groups.after({}, before.ingested_at_us, at_us).set_back(to_us)
    return SourceWatermark(to_us, at_us, groups.without_passed(to_us))


def _ingested_at_after(before: SourceWatermark, now_us: int) -> int:
    if before.ingested_at_us is None:
        return floor_to_ms(now_us)
    return max(floor_to_ms(now_us), before.ingested_at_us + US_PER_MS)


def heartbeat(source: Source, before: SourceWatermark, after: SourceWatermark) -> pa.Table:
    events = pa.table({"event_time_us": [after.watermark_us], "source_file": pa.nulls(1)})
    return bronze_rows(source, events, before, after)


# A producer that knows it is behind puts a file of this name directly in landing/<source>.
LAGGING = "_lagging"


def why_not_ingest(
    lake: Lake, source: Source, interval_end: datetime | None, now: datetime
) -> str | None:
    """Why an ingest run would change nothing; None when it would, or when only it can tell."""
    if lag_of_run(lake, source).waiting:
        return None
    if has_to_mend(lake, source):
        return None  # the run goes on with it, or fails and says so
    logged = read_log(lake, source.name)
    repair = amendments_in(logged, source.name).open
    if repair is not None and repair.kind == SET_WATERMARK and not repair.is_amended:
        return None  # as above
    nothing_new = f"nothing new in {place_of(source)}"
    if source.heartbeat_delay is None:
        return nothing_new
    watermark_us = None if logged is None else logged.clock(source).watermark_us
    target_us, _ = heartbeat_target(lake, source, watermark_us, interval_end, now)
    if target_us is not None and lagging_producer(lake, source) is None:
        return None
    return f"{nothing_new}, and no heartbeat is due"


def heartbeat_target(
    lake: Lake,
    source: Source,
    watermark_us: int | None,
    interval_end: datetime | None,
    now: datetime,
) -> tuple[int | None, bool]:
    """The watermark after a heartbeat, None for no row; and whether `max_clock_step` is less.

    An `interval_end` in the future, or none, counts as `now`. Before any data there is a row only
    with an initial state: whatever lands first may be old, and all of it would be late.
    """
    if source.heartbeat_delay is None:
        return None, False
    end = now if interval_end is None else min(interval_end, now)
    due_us = (end - EPOCH - source.heartbeat_delay) // MILLISECOND * US_PER_MS
    if watermark_us is None:
        return due_us if has_initial_state(lake, source) else None, False
    if due_us <= watermark_us:
        return None, False
    step = source.max_clock_step
    most_us = due_us if step is None else watermark_us + step // MILLISECOND * US_PER_MS
    return min(most_us, due_us), most_us < due_us


def as_text(micros: int) -> str:
    return instant_of(micros).isoformat(timespec="milliseconds")


def landing_lag(lake: Lake, source: Source) -> str | None:
    """How landing is known to be behind once it has been drained; None when it is not."""
    lag = connector_of(lake, source).lag(read_done(lake, source.name))
    if lag.waiting:
        return f"{lag.waiting} more have come to {place_of(source)} meanwhile"
    return lag.held or lagging_producer(lake, source)


def lagging_producer(lake: Lake, source: Source) -> str | None:
    """What a producer's marker file says; None without one."""
    marker = f"landing/{source.name}/{LAGGING}"
    return f"{marker} says that a producer is behind" if is_there(lake, marker) else None


def has_initial_state(lake: Lake, source: Source) -> bool:
    """Whether a stream of the source starts from an initial state, a table or a file."""
    return any(
        lake.is_delta_table(lake.initial_state(stream.name))
        or is_there(lake, f"initial_state/{stream.name}.json")
        for stream in streams_of(source.name)
    )


log = logging.getLogger("job.watermark")


def write_heartbeat(
    ingestion: Ingestion, interval_end: datetime | None, now: datetime
) -> list[Finding]:
    """Move the watermark of a silent source on, after the drain; not while landing is behind.

    A row that would go further than it may is a finding.
    """
    lake, source = ingestion.lake, ingestion.source
    if source.heartbeat_delay is None:
        return []
    if (lag := landing_lag(lake, source)) is not None:
        log.info("no heartbeat of %s: %s", source.name, lag)
        return []

    def write() -> bool:
        before = read_watermark(ingestion)
        m_us, now_us = before.watermark_us, (now - EPOCH) // MICROSECOND
        target_us, is_bounded = heartbeat_target(lake, source, m_us, interval_end, now)
        if target_us is None:
            return False
        after = advance_watermark(before, target_us, now_us)
        # Where groups hold it back, time passes by it for who is silent. Not at one instant twice.
        if after.watermark_us != before.watermark_us or now_us > (before.ingested_at_us or 0):
            ingestion.commit_rows(before, after, heartbeat(source, before, after))
        return is_bounded and after.watermark_us == target_us

    if not ingestion.again(write):
        return []
    said = (
        f"of {source.name} more should have landed than by what one run moves the watermark on, "
        f"{source.max_clock_step} (max_clock_step). The next run goes on from there"
    )
    return [FINDINGS["heartbeat_bounded"].found(source.name, said)]


def write_keepalive(lake: Lake, source: Source) -> None:
    """Append a heartbeat that moves neither M nor `ingested_at`, so that a batch has what to read.

    LakeError when bronze has no clock yet.
    """

    def write(ingestion: Ingestion) -> None:
        clock = read_watermark(ingestion)
        if clock.watermark_us is None:
            said = f"{lake.bronze(source.name)} has no row yet: ingest first"
            raise LakeError(said, code="nothing_there", subject=source.name)
        ingestion.commit_rows(clock, clock, heartbeat(source, clock, clock), {KEEPALIVE: True})

    _finished(lake, source, write)


def write_set_watermark(lake: Lake, source: Source, now_us: int) -> None:
    """Append the heartbeat that sets M back for the repair that is open, once."""

    def write(ingestion: Ingestion) -> None:
        repair = amendments_in(ingestion.logged, source.name).open
        if repair is not None and repair.kind == SET_WATERMARK and not repair.is_amended:
            before = read_watermark(ingestion)
            after = set_watermark_back(before, repair.to_us, now_us)
            note = {AMENDMENT: repair.number, "amended": after.ingested_at_us}
            ingestion.commit_rows(before, after, heartbeat(source, before, after), note)

    _finished(lake, source, write)


def _finished(lake: Lake, source: Source, write: Callable[[Ingestion], None]) -> None:
    ingestion = Ingestion(lake, source)
    ingestion.finish()
    ingestion.again(lambda: write(ingestion))
