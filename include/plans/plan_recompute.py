"""What a recompute of an interval would do: its base, what is read, what is replaced, how long.

From the lake alone, without a JVM; the job does what its own plan says, made under the lease.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from operator import truediv
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.coverage.findings import effect_text
from include.coverage.judge import Coverage
from include.fold.admission import US_PER_MS, instant_of, micros_of, no_such_day
from include.lake.delta_log import dataset_of, unbroken
from include.lake.errors import wrong_argument
from include.lake.generations import read_generations
from include.lake.paths import Lake, LakeError
from include.lake.stream_result import complete_until, replaced_by
from include.landing.amendments import refuse_run
from include.plans.stream_status import trusted_coverage
from include.savepoints.bronze_pin import BronzePin, count_before, pin_bronze
from include.savepoints.choose_base import Base, choose_base
from include.savepoints.manifest import StreamIdentity, is_mapped, savepoints_of
from include.settings import SettingsError, Stream
from include.text_table import counted


class NotSettledError(SettingsError):
    """The live stream has not come to the interval's end: the message says when it will."""

    code = "not_settled"


@dataclass(frozen=True)
class RecomputePlan:
    """A recompute, decided."""

    identity: StreamIdentity
    start: datetime
    until: datetime
    pin: BronzePin
    base: Base
    rows_to_read: int
    rows_replaced: int  # of the table
    estimated_seconds: float | None  # None: no recorded recompute of the stream to go by
    coverage: Coverage  # of the table as it is now

    def text(self) -> str:
        """The plan for people."""
        took = "no recompute of it is recorded to estimate the time by"
        if self.estimated_seconds is not None:
            took = f"about {self.estimated_seconds:.0f} s"
        return (
            f"recompute {self.identity.stream} from {self.start:%Y-%m-%d %H:%M:%S} until "
            f"{self.until:%Y-%m-%d %H:%M:%S} UTC: replays {counted(self.rows_to_read, 'row')} of bronze "
            f"(version {self.pin.version}) from {base_text(self.base)}, replaces "
            f"{counted(self.rows_replaced, 'row')} of its table; {took}. "
            f"{effect_text(self.coverage, micros_of(self.start), micros_of(self.until))}"
        )


def base_text(base: Base) -> str:
    """Where a replay begins, for people."""
    if base.savepoint is not None:
        return f"savepoint {base.savepoint.savepoint_id}"
    return "the beginning" if base.until_us is None else "the initial state"


def parse_instant(name: str, text: str) -> datetime:
    """A date or an instant in ISO 8601, UTC where it says no zone; SettingsError otherwise."""
    try:
        instant = datetime.fromisoformat(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except ValueError as error:
        raise wrong_argument(name, f"{name} is {text!r}: {_why_none(text, error)}") from error
    except OverflowError as error:
        raise wrong_argument(
            name, f"{name} is {text!r}: in UTC it is not in the years 1 to 9999"
        ) from error


def _why_none(text: str, error: ValueError) -> str:
    if no_day := no_such_day(text):
        return no_day
    if not str(error).startswith("Invalid isoformat"):
        return str(error)  # such as: hour must be in 0..23
    return "give a date such as 2026-01-05, or an instant such as 2026-01-05T13:00:00Z"


def plan_recompute(
    lake: Lake, stream: Stream, identity: StreamIdentity, start: datetime, until: datetime
) -> RecomputePlan:
    """The plan for `[start, until)`, on the stream's clock.

    Raises SettingsError for an empty interval, NotSettledError for one that live has not
    settled, LakeError when there is nothing to compute from, or it must not be now.
    """
    if start >= until:
        raise wrong_argument(
            "UNTIL", f"the interval from {start} until {until} is empty: give a later end"
        )
    refuse_run(lake, stream)
    refuse_live_state(identity)
    check_settled(lake, stream, until)
    if (initial := before_initial_state(identity, until)) is not None:
        raise initial
    return plan_intervals(lake, stream, identity, [(start, until)])[0]


def plan_intervals(
    lake: Lake,
    stream: Stream,
    identity: StreamIdentity,
    intervals: Sequence[tuple[datetime, datetime]],
) -> list[RecomputePlan]:
    """The plans of intervals, each from the end of the one before, and after the recompute of that."""
    edges = [intervals[0][0], *(until for _, until in intervals)]
    edges_us = [micros_of(edge) for edge in edges]
    pin = pin_bronze(lake, stream.source)
    refuse_beyond_bronze(lake, identity, pin, until_us=edges_us[-1])
    base = choose_base(savepoints_of(lake, stream.name), identity, pin, at_most_us=edges_us[0])
    refuse_before_mapping(identity, base, edges[0])
    events = count_before(pin, identity.time_column, identity.since_us, cutoffs_us=edges_us)
    events[0] = base.events
    replaced = rows_emitted(lake, stream, edges)
    recorded = recorded_recomputes(lake, stream.name)
    coverage = trusted_coverage(lake, stream, identity)
    return [
        RecomputePlan(
            identity,
            start,
            until,
            pin=pin,
            base=base,
            rows_to_read=after - before,
            rows_replaced=rows,
            estimated_seconds=seconds_for(after - before, recorded),
            coverage=coverage,
        )
        for (start, until), (before, after), rows in zip(
            intervals, pairwise(events), replaced, strict=True
        )
    ]


def refuse_live_state(identity: StreamIdentity) -> None:
    """SettingsError for an update table: it shows the live state, of which no interval has rows."""
    if identity.output_mode == "update":
        raise SettingsError(
            f"the table of {identity.stream} shows the live state, and no row of it is an interval's: "
            "a reseed takes late rows into both",
            code="no_interval",
            subject=identity.stream,
            command=f"./stateful reseed {identity.stream} --apply",
        )


def before_initial_state(identity: StreamIdentity, until: datetime) -> SettingsError | None:
    """The error of who would recompute what is before that instant, for a stream whose initial state
    stands for all of it; None where something is to be recomputed."""
    if identity.since_us is None or micros_of(until) > identity.since_us:
        return None
    as_of = instant_of(identity.since_us)
    return SettingsError(
        f"{identity.stream} begins with an initial state as of {as_of}: there is nothing to recompute "
        "before that",
        code="before_initial_state",
        subject=identity.stream,
    )


def refuse_before_mapping(identity: StreamIdentity, base: Base, start: datetime) -> None:
    """SettingsError when only the beginning is left, and the stream's states do not come of it."""
    if base.savepoint is None and is_mapped(identity.code):
        raise SettingsError(
            f"the state of {identity.stream} goes back to one that migrate_state has mapped, and no "
            f"clean savepoint of it is from before {start:%Y-%m-%d %H:%M:%S} UTC: what is earlier is "
            f"as the former code made it. Make all of it anew by the code of now",
            code="mapped_state",
            subject=identity.stream,
            command=f"./stateful reseed {identity.stream} --recompute --apply",
        )


def check_settled(lake: Lake, stream: Stream, until: datetime) -> None:
    """NotSettledError unless the live stream has settled everything before `until`."""
    settled = complete_until(lake, stream.name)
    if settled is not None and until <= settled:
        return
    delay = stream.watermark_delay
    known = "has settled nothing yet"
    if settled is not None:
        known = f"is complete until {settled:%Y-%m-%d %H:%M:%S} UTC"
    raise NotSettledError(
        f"{stream.name} {known}: what is before {until:%Y-%m-%d %H:%M:%S} UTC can be recomputed "
        f"once an event after {until + delay:%Y-%m-%d %H:%M:%S} UTC is in bronze. "
        "Nothing was changed; then run the stream",
        subject=stream.name,
        command=f"./stateful stream {stream.name}",
    )


def refuse_beyond_bronze(
    lake: Lake, identity: StreamIdentity, pin: BronzePin, until_us: int
) -> None:
    """NotSettledError when the pinned rows do not settle all before `until_us`, as live has.

    Such as an older copy of bronze, or one that is ingested anew: rows that come again later would be
    in time there, and nothing would call what lacks them wrong.
    """
    row = read_generations(lake, identity.stream).current
    delay_us = identity.delay_us if row is None else row["watermark_delay_ms"] * US_PER_MS
    there_us = pin.settled_until_us(identity.time_column, delay_us)
    if until_us > there_us:
        raise NotSettledError(
            f"{pin.path} settles what is before {instant_of(there_us):%Y-%m-%d %H:%M:%S} UTC only, and "
            f"live has come further: ingest what is missing of it, and then make the table anew. "
            "Nothing was changed",
            code="of_other_times",
            subject=f"bronze/{identity.source}",
            command=f"./stateful reseed {identity.stream} --recompute --apply",
        )


def recorded_recomputes(lake: Lake, stream: str) -> list[tuple[int, float]]:
    """Rows read and seconds of each recompute and reseed of the stream."""
    return [
        (row["rows_in"], (row["ended_at"] - row["started_at"]).total_seconds())
        for row in replaced_by(lake, stream)
        if row["ended_at"] > row["started_at"]
    ]


def seconds_for(rows: int, recorded: Sequence[tuple[int, float]]) -> float | None:
    """What replaying so many rows would take: the recorded median, and what more rows cost; None without any."""
    if not recorded:
        return None
    read, seconds = zip(*recorded, strict=True)
    typical, rows_per_second = float(median(seconds)), float(max(map(truediv, read, seconds)))
    return max(typical, rows / rows_per_second) if rows_per_second else typical


def rows_emitted(lake: Lake, stream: Stream, edges: Sequence[datetime]) -> list[int]:
    """How many rows of the table were emitted between each edge and the next, rising.

    Raises LakeError when there is no table, or it cannot be read.
    """
    path = lake.table(stream.name)
    if not lake.is_delta_table(path):
        raise LakeError(
            f"there is no {path} yet: run the stream first",
            code="nothing_there",
            subject=f"tables/{stream.name}",
            command=f"./stateful stream {stream.name}",
        )
    first, last = (edge.astimezone(UTC).date() for edge in (edges[0], edges[-1]))
    dates = (pc.field("emitted_date") >= first) & (pc.field("emitted_date") <= last)
    below = np.zeros(len(edges), np.int64)
    edges_us = np.array([micros_of(edge) for edge in edges])
    with unbroken(path):
        for batch in dataset_of(path).scanner(["emitted_at"], filter=dates).to_batches():
            emitted_us = np.sort(
                pc.cast(batch["emitted_at"], pa.int64()).to_numpy(zero_copy_only=False)
            )
            below += np.searchsorted(emitted_us, edges_us)
    return [int(count) for count in np.diff(below)]
