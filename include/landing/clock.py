"""The clock of bronze: how far it stands, and the clock rows that move it on. Read without a JVM.

When a source falls silent, no watermark moves and no timeout fires. So an ingest run of a
source with a `clock_grace` may end with a clock row, which says: all that happened until
then has landed. Where that is known to be untrue the row is held back, as what lands after
it may be late. The Dag and the job decide alike, here.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pyarrow import fs

from include.fold.admission import EPOCH, US_PER_MS, instant_of
from include.lake.delta_log import table_to_read, told_by
from include.lake.paths import Lake, LakeError
from include.landing.clock_repair import is_reset_missing
from include.landing.group_clock import Groups, logged_groups
from include.landing.ingest_seal import WATERMARK_KEY, how_tables_changed
from include.landing.origin import behind, has_arrived, place_of
from include.registry import streams_of
from include.settings import MILLISECOND, Source

# A producer that knows it is behind puts a file of this name directly in landing/<source>.
LAGGING = "_lagging"

# Bronze's own log names its clock (this, and WATERMARK_KEY), so that the next commit need not
# look for it in the rows.
INGESTED_AT_KEY = "ingested_at_us"
# A commit of one clock row that leaves the clock where it was: it only makes a batch.
STILL_KEY = "still"
# A commit that set the clock back on purpose (include/landing/clock_repair.py); the number of the repair.
RESET_KEY = "reset"
COMMITS_LOOKED_AT = 20
COMMITS_WITHOUT_ROWS = frozenset(
    {
        "ADD COLUMN",
        "CHANGE COLUMN",
        "OPTIMIZE",
        "SET TBLPROPERTIES",
        "UPDATE FIELD METADATA",
        "VACUUM END",
        "VACUUM START",
    }
)


class Clock(NamedTuple):
    """The newest instants in bronze, in microseconds; None before its first rows."""

    watermark_us: int | None  # M, see include/landing/bronze_commits.py
    ingested_at_us: int | None
    # Of a source with `watermark_per`; None also where the log does not say, and rows must be read.
    groups: Groups | None = None

    def or_later(self, earlier: "Clock") -> "Clock":
        """With what an earlier commit had reached beyond it; what is not known stays so."""
        at_us = _later(self.ingested_at_us, earlier.ingested_at_us)
        return Clock(_later(self.watermark_us, earlier.watermark_us), at_us, self._groups(earlier))

    def _groups(self, earlier: "Clock") -> Groups | None:
        """None when they were counted without that commit."""
        if self.groups is None or earlier.ingested_at_us == self.ingested_at_us:
            return self.groups
        return self.groups if self.groups.has_seen(earlier.ingested_at_us) else None

    def metadata(self) -> dict[str, object]:
        """What a commit to bronze says of itself in the table's log, for `read_logged_clock`."""
        groups = {} if self.groups is None else self.groups.metadata()
        return {WATERMARK_KEY: self.watermark_us, INGESTED_AT_KEY: self.ingested_at_us} | groups


def _later(mine: int | None, its: int | None) -> int | None:
    return mine if mine is None or its is None else max(mine, its)


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
    if how_tables_changed(lake, source.name):
        return None  # the run fails, and says so
    if is_reset_missing(lake, source.name):
        return None  # as above
    nothing_new = f"nothing new in {place_of(source)}"
    if source.clock_grace is None:
        return nothing_new
    clock = read_logged_clock(lake, source)
    if clock is None:
        return None
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


def read_logged_clock(lake: Lake, source: Source) -> Clock | None:
    """The clock as bronze's log has it; None when it does not say, and rows must be read.

    The newest commit that names it should name the latest. Of those before it, too, the latest
    counts: a row may have been appended behind a commit that its writer had not seen.
    """
    path = lake.bronze(source.name)
    if not lake.is_delta_table(path):
        return Clock(None, None)
    newest: Clock | None = None
    for commit in table_to_read(path).history(limit=COMMITS_LOOKED_AT):
        metadata = told_by(commit)
        if WATERMARK_KEY in metadata:
            found = _clock_in(metadata, source)
            newest = found if newest is None else newest.or_later(found)
            if RESET_KEY in metadata:
                return newest  # what came before it counts no more
        elif commit.get("operation") not in COMMITS_WITHOUT_ROWS:
            is_first = commit.get("operation") == "CREATE TABLE"
            return newest or (Clock(None, None) if is_first else None)
    return newest


def _clock_in(metadata: Mapping[str, Any], source: Source) -> Clock:
    groups = logged_groups(metadata, source)
    return Clock(metadata[WATERMARK_KEY], metadata[INGESTED_AT_KEY], groups)


def check_clock_order(lake: Lake, source: Source, before: Clock, after: Clock) -> None:
    """LakeError when the commit that made the clock `after` did not know the one right before it.

    `before` is the clock that it had read. Only of what bronze's log says; it need not have been
    committed, as a repeated batch is not.
    """
    commits = iter(table_to_read(lake.bronze(source.name)).history(limit=COMMITS_LOOKED_AT))
    if not any(_has_made(after, commit) for commit in commits):  # and on to those before it
        return
    for metadata in map(told_by, commits):
        if WATERMARK_KEY in metadata:
            found = _clock_in(metadata, source)
            if before != before.or_later(found):
                raise LakeError(
                    f"two jobs have written to bronze/{source.name} at the same time: one commit "
                    f"knows the watermark {_text(before)}, the one before it {_text(found)}. Keep to "
                    "one writer of a source, and run again. Should a stream refuse rows that are "
                    "before what it has folded, `./stateful reseed NAME --apply` takes them in",
                    code="two_writers",
                    subject=source.name,
                )
            return


def _has_made(clock: Clock, commit: Mapping[str, Any]) -> bool:
    named = told_by(commit).get(INGESTED_AT_KEY) == clock.ingested_at_us
    return named and not moves_nothing(commit)


def _text(clock: Clock) -> str:
    return "none" if clock.watermark_us is None else as_text(clock.watermark_us)


def moves_nothing(commit: Mapping[str, Any]) -> bool:
    """Whether a commit of bronze (its commitInfo) is a clock row that moved no watermark."""
    return bool(told_by(commit).get(STILL_KEY))
