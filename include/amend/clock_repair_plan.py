"""What a repair of a source's clock would do (include/ingest/amendments.py), decided without a JVM."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.ingest.amendments import ClockRepair, amended_streams, amendments_of
from include.ingest.clock import as_text
from include.lake.delta_log import delta_table
from include.lake.errors import SettingsError, wrong_argument
from include.lake.paths import Lake
from include.settings import Source, Stream
from include.stream.bronze_pin import (
    BronzeFiles,
    BronzePin,
    count_before,
    known,
    pin_bronze,
    read_files,
)
from include.stream.judge import late_groups
from include.stream.stream_identity import stream_identity
from include.text_table import counted

# Later than any instant of bronze.
END_US = micros_of(datetime.max.replace(tzinfo=UTC))


@dataclass(frozen=True)
class ClockRepairPlan:
    """A repair, decided: M of `pin` is to be `to_us`."""

    source: str
    pin: BronzePin
    to_us: int
    passed_at_us: int  # when (`ingested_at`) the first commit came that took M beyond `to_us`
    ahead: int  # rows of bronze after `to_us`
    late: dict[str, int]  # of each stream that is reseeded: rows late since then

    def text(self) -> str:
        """The plan for people."""
        late = "; ".join(f"{rows:,} of {name}" for name, rows in self.late.items())
        return (
            f"repair the clock of bronze/{self.source}: it is at {as_text(self.pin.watermark_us)}, "
            f"and is set back to {as_text(self.to_us)}, which it passed with what was ingested at "
            f"{as_text(self.passed_at_us)}. {counted(self.ahead, 'row')} after that must "
            f"wait until the clock comes so far. Late since then, and taken in: {late or 'none: no stream'}. "
            "All runs of these streams wait until each is reseeded"
        )


def plan_clock_repair(lake: Lake, source: Source, to: datetime) -> ClockRepairPlan:
    """The plan. SettingsError for an instant that cannot be, LakeError without bronze."""
    pin = pin_bronze(lake, source.name)
    to_us = micros_of(to) // US_PER_MS * US_PER_MS  # as watermarks are
    _refuse(lake, source, pin, to_us=to_us)
    passed_at_us = _passed_at_us(pin, to_us)
    everything = count_before(pin, "event_time", None, cutoffs_us=[to_us + 1, END_US])
    streams = [stream for stream, _ in amended_streams(lake, source.name)]
    late = {stream.name: _late_since(lake, stream, passed_at_us) for stream in streams}
    ahead = everything[1] - everything[0]
    return ClockRepairPlan(
        source.name, pin, to_us, passed_at_us=passed_at_us, ahead=ahead, late=late
    )


def wanted_repair(lake: Lake, source: Source, to: datetime | None) -> ClockRepair | None:
    """The open repair, if `to` is its own or not given; None when one is to begin at `to`."""
    begun = amendments_of(lake, source.name).open_repair
    if begun is None and to is None:
        raise wrong_argument(
            "--to",
            f"no repair of the clock of {source.name} is open: --to is missing, the instant (UTC) "
            "that it is to be set back to",
        )
    if (
        begun is not None
        and to is not None
        and micros_of(to) // US_PER_MS * US_PER_MS != begun.to_us
    ):
        raise SettingsError(
            f"a repair of the clock of {source.name} to {as_text(begun.to_us)} is open: finish it "
            "first",
            code="unfinished_repair",
            subject=source.name,
            command=f"./stateful repair-clock {source.name} --apply",
        )
    return begun


def _refuse(lake: Lake, source: Source, pin: BronzePin, to_us: int) -> None:
    if to_us >= pin.watermark_us:
        raise wrong_argument(
            "--to",
            f"--to is {as_text(to_us)}, but the clock of bronze/{source.name} is at "
            f"{as_text(pin.watermark_us)}: a repair only sets it back",
        )
    now = datetime.now(UTC)
    if instant_of(to_us) > now:
        raise wrong_argument(
            "--to", f"--to is {as_text(to_us)}, and it is {now:%Y-%m-%d %H:%M:%S} UTC now"
        )
    # M after the first commit, cut to a millisecond, as watermarks are.
    first_us = int(
        pc.min(BronzeFiles(delta_table(pin.path)).instants("min", "commit_watermark")).as_py()
    )
    if to_us < first_us:
        raise wrong_argument(
            "--to",
            f"--to is {as_text(to_us)}, but the clock of bronze/{source.name} began at "
            f"{as_text(first_us)}: give that or a later instant",
        )


def _passed_at_us(pin: BronzePin, to_us: int) -> int:
    """When M was taken beyond `to_us`: since the last time that it was set back to before it."""
    table = delta_table(pin.path)
    files = BronzeFiles(table)
    before = known(pc.less_equal(files.latest("commit_watermark"), to_us))
    beyond = pc.field("commit_watermark") > pa.scalar(instant_of(to_us))
    columns = ["ingested_at", "arrival_watermark", "commit_watermark"]
    arrival = pc.field("arrival_watermark")
    wanted = beyond & (arrival.is_null() | (arrival <= pa.scalar(instant_of(to_us))))
    batches = read_files(table, files.paths_but(before), columns, wanted=wanted)
    passed = [pc.max(batch["ingested_at"]).as_py() for batch in batches]
    found = [instant for instant in passed if instant is not None]
    if not found:
        raise wrong_argument(
            "--to", f"{pin.path} has no commit that took its clock beyond {as_text(to_us)}"
        )
    return micros_of(max(found))


def _late_since(lake: Lake, stream: Stream, passed_at_us: int) -> int:
    identity = stream_identity(lake, stream)
    if identity.time_column != "event_time":
        return 0  # by the clock of ingestion no row is late
    groups = late_groups(lake, stream.source, identity.delay_us, identity.since_us, passed_at_us)
    return sum(group.rows for group in groups)
