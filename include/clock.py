"""How far the clock of bronze stands, and when a clock row moves it on, read without a JVM.

When a source falls silent, no watermark moves and no timeout fires. So an ingest run of a
source with a `clock_grace` may end with a clock row, which says: all that happened until
then has landed. Where that is known to be untrue the row is held back, as what lands after
it may be late. The Dag and the job decide alike, here.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from deltalake import DeltaTable
from pyarrow import fs

from include.instants import EPOCH, US_PER_MS, instant_of
from include.lake import Lake
from include.landing_position import files_waiting
from include.streams import MILLISECOND, STREAMS, Source

# A producer that knows it is behind puts a file of this name directly in landing/<source>.
LAGGING = "_lagging"

# Bronze's own log names its clock, so that the next commit need not look for it in the rows.
WATERMARK_KEY = "commit_watermark_us"
INGESTED_AT_KEY = "ingested_at_us"
# A commit of one clock row that leaves the clock where it was: it only makes a batch.
STILL_KEY = "still"
COMMITS_LOOKED_AT = 20
COMMITS_WITHOUT_ROWS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CHANGE COLUMN"}
)


class Clock(NamedTuple):
    """The newest instants in bronze, in microseconds; None before its first rows."""

    watermark_us: int | None  # M, see spark_jobs/lake/bronze.py
    ingested_at_us: int | None

    def metadata(self) -> dict[str, object]:
        """What a commit to bronze says of itself in the table's log, for `read_logged_clock`."""
        return {WATERMARK_KEY: self.watermark_us, INGESTED_AT_KEY: self.ingested_at_us}


class ClockPlan(NamedTuple):
    """What a clock row would raise the watermark to, None for no row; and why."""

    target_us: int | None
    why: str


def why_not_ingest(
    lake: Lake, source: Source, interval_end: datetime | None, now: datetime
) -> str | None:
    """Why an ingest run would change nothing; None when it would, or when only it can tell."""
    if files_waiting(lake, source.name):
        return None
    nothing_new = f"nothing new in landing/{source.name}"
    if source.clock_grace is None:
        return nothing_new
    clock = read_logged_clock(lake, source)
    if clock is None:
        return None
    has_seed, lag = has_initial_state(lake, source), lagging_producer(lake, source)
    plan = plan_clock_row(source, clock.watermark_us, has_seed, lag, interval_end, now)
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
    return ClockPlan(target_us, f"all of {source.name} until {as_text(target_us)} has landed")


def as_text(micros: int) -> str:
    """An instant for people."""
    return instant_of(micros).isoformat(timespec="milliseconds")


def landing_lag(lake: Lake, source: Source) -> str | None:
    """How landing is known to be behind once it has been drained; None when it is not."""
    waiting = files_waiting(lake, source.name)
    if waiting:
        return f"{waiting} more file(s) have come to landing/{source.name} meanwhile"
    return lagging_producer(lake, source)


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
        for stream in STREAMS
        if stream.source == source.name
    )


def _exists(lake: Lake, path: str) -> bool:
    info = lake.filesystem.get_file_info(lake.path_in_filesystem(path))
    return bool(info.type != fs.FileType.NotFound)


def read_logged_clock(lake: Lake, source: Source) -> Clock | None:
    """The clock as bronze's log has it; None when it does not say, and rows must be read.

    Tables of version 0.1 have no `ingested_at_us` there: with such a commit it is None.
    """
    path = lake.bronze(source.name)
    if not lake.is_delta_table(path):
        return Clock(None, None)
    for commit in DeltaTable(path).history(limit=COMMITS_LOOKED_AT):
        metadata = _user_metadata(commit)
        if WATERMARK_KEY in metadata:
            return Clock(metadata[WATERMARK_KEY], metadata.get(INGESTED_AT_KEY))
        if commit.get("operation") == "CREATE TABLE":
            return Clock(None, None)
        if commit.get("operation") not in COMMITS_WITHOUT_ROWS:
            return None
    return None


def moves_nothing(commit: Mapping[str, Any]) -> bool:
    """Whether a commit of bronze (its commitInfo) is a clock row that moved no watermark."""
    return bool(_user_metadata(commit).get(STILL_KEY))


def _user_metadata(commit: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}  # someone else's commit, with a text of their own
    return metadata if isinstance(metadata, dict) else {}
