"""The plan of setting a source's watermark back (include/ingest/amendments.py), without a JVM."""

from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow.compute as pc

from include.fold.admission import LAST_INSTANT_US, US_PER_MS, micros_of
from include.ingest.amendments import ERASURE, Amendment, amended_streams, amendments_of
from include.ingest.watermark import as_text
from include.lake.delta_log import delta_table
from include.lake.errors import SettingsError, wrong_argument
from include.lake.paths import Lake
from include.settings import Source
from include.stream.bronze import BronzeFiles, BronzeVersion, count_before, newest_bronze
from include.text_table import counted


class WatermarkPlan(NamedTuple):
    """The decision to set the source watermark back to `to_us`."""

    begun: Amendment | None  # the open one, which is finished
    to_us: int
    text: str  # for people


def plan_set_watermark(lake: Lake, source: Source, to: datetime | None) -> WatermarkPlan:
    """Return the plan: to finish what was begun, or to begin. Raises SettingsError for an instant that
    cannot be, LakeError without bronze and while a key is being erased from it."""
    begun = amendments_of(lake, source.name).open
    to_us = None if to is None else micros_of(to) // US_PER_MS * US_PER_MS  # as watermarks are
    if begun is not None:
        return _finishing(begun, to_us)
    if to_us is None:
        raise wrong_argument(
            "--to", f"no set-watermark of {source.name} is unfinished: --to is missing"
        )
    bronze = newest_bronze(lake, source.name)
    _refuse(source, bronze, to_us)
    before, all_ = count_before(bronze, "event_time", None, cutoffs_us=[to_us + 1, LAST_INSTANT_US])
    streams = [stream.name for stream, _ in amended_streams(lake, source.name)]
    said = (
        f"set the watermark of {source.name} back from {as_text(bronze.watermark_us)} to "
        f"{as_text(to_us)}: {counted(all_ - before, 'row')} after that must wait until it comes so far; "
        f"streams that are rebuilt, late rows included: {', '.join(streams) or 'none'}"
    )
    return WatermarkPlan(None, to_us, said)


def _finishing(begun: Amendment, to_us: int | None) -> WatermarkPlan:
    source = begun.source
    if begun.kind == ERASURE:
        raise begun.unfinished("set-watermark")
    if to_us not in (None, begun.to_us):
        raise SettingsError(
            f"set-watermark of {source} to {as_text(begun.to_us)} is unfinished: finish it first",
            code="unfinished_set_watermark",
            subject=source,
            command=f"./stateful set-watermark {source} --apply",
        )
    said = f"finish set-watermark of {source}: its watermark is at {as_text(begun.to_us)} then"
    return WatermarkPlan(begun, begun.to_us, said)


def _refuse(source: Source, bronze: BronzeVersion, to_us: int) -> None:
    # The watermark after the first commit, floored to a millisecond, as watermarks are.
    first = pc.min(BronzeFiles(delta_table(bronze.path)).instants("min", "watermark_after"))
    first_us, last_us = first.as_py(), min(bronze.watermark_us - 1, micros_of(datetime.now(UTC)))
    if not first_us <= to_us <= last_us:
        raise wrong_argument(
            "--to",
            f"the watermark of {source.name} is only set back: give --to from {as_text(first_us)} until "
            f"{as_text(last_us)}, not {as_text(to_us)}",
        )
