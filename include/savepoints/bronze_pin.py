"""A version of bronze as a point in time, and how many of its events lie before an instant.

Bronze is append-only, and `ingested_at` is later in each commit than in all before. So "all
rows of version V" is "all rows up to V's newest `ingested_at`", in any later version: no old
version has to be kept readable, and OPTIMIZE and VACUUM are free to work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import dataset as ds

from include.clock import EPOCH
from include.lake import Lake, LakeError

MICROSECOND = timedelta(microseconds=1)
INSTANT = pa.timestamp("us", tz="UTC")
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True)
class BronzePin:
    """All rows of a version of a bronze table."""

    path: str
    table_id: str
    version: int
    ingested_at_us: int
    watermark_us: int  # M after its newest commit

    def settled_until_us(self, time_column: str, delay_us: int) -> int:
        """The exclusive bound of what these rows settle, on the clock of `time_column`."""
        if time_column == "ingested_at":
            return self.ingested_at_us + 1
        return self.watermark_us - delay_us + 1


def pin_bronze(lake: Lake, source: str) -> BronzePin:
    """The newest version of the source's bronze; LakeError when it has no rows yet."""
    path = lake.bronze(source)
    if not lake.is_delta_table(path):
        raise LakeError(f"no bronze table at {path}: ingest {source} first")
    table = DeltaTable(path)
    clocks = table.to_pyarrow_dataset().scanner(columns=["commit_watermark", "ingested_at"])
    newest = {"commit_watermark": None, "ingested_at": None}
    for batch in clocks.to_batches():
        for name, known in newest.items():
            found = pc.max(batch[name]).as_py()
            newest[name] = found if known is None else max(known, found or known)
    if newest["ingested_at"] is None or newest["commit_watermark"] is None:
        raise LakeError(f"{path} has no rows yet: there is nothing to compute from")
    return BronzePin(
        path,
        str(table.metadata().id),
        int(table.version()),
        _micros(newest["ingested_at"]),
        _micros(newest["commit_watermark"]),
    )


def count_before(
    pin: BronzePin, time_column: str, since_us: int | None, cutoffs_us: Sequence[int]
) -> list[int]:
    """For each cutoff, how many events of the pinned rows lie at or after `since_us` and before it.

    Whole dates are counted in one go; statistics of instants are not used, as Delta's are in
    milliseconds.
    """
    if not cutoffs_us:
        return []
    counts = [0] * len(cutoffs_us)
    for batch in _event_batches(pin, time_column, max(cutoffs_us)):
        times = pc.cast(batch[time_column], pa.int64())
        if since_us is not None:
            times = times.filter(pc.greater_equal(times, since_us))
        for index, cutoff_us in enumerate(cutoffs_us):
            counts[index] += int(pc.sum(pc.less(times, cutoff_us)).as_py() or 0)
    return counts


def _event_batches(pin: BronzePin, time_column: str, until_us: int) -> Iterator[Any]:
    wanted = pc.field("ingested_at") <= pa.scalar(_instant(pin.ingested_at_us), INSTANT)
    wanted &= ~pc.field("is_clock")
    if time_column == "event_time":
        wanted &= pc.field("event_date") <= pa.scalar(_date(until_us))
    dataset = DeltaTable(pin.path).to_pyarrow_dataset()
    return iter(_without_statistics(dataset).scanner([time_column], filter=wanted).to_batches())


def _without_statistics(dataset: ds.Dataset) -> ds.Dataset:
    """delta-rs offers each file's smallest and largest instants, cut to milliseconds, as facts:
    rows within the last millisecond would be counted or left out by file."""
    fragments = [
        fragment.format.make_fragment(
            fragment.path, fragment.filesystem, _date_alone(fragment.partition_expression)
        )
        for fragment in dataset.get_fragments()
    ]
    if not fragments:
        return dataset
    return ds.FileSystemDataset(
        fragments, dataset.schema, fragments[0].format, fragments[0].filesystem
    )


def _date_alone(expression: pc.Expression) -> pc.Expression:
    keys = ds.get_partition_keys(expression)
    if "event_date" not in keys:
        return pc.scalar(True)
    return pc.field("event_date") == pa.scalar(keys["event_date"], pa.date32())


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND


def _instant(micros: int) -> datetime:
    return EPOCH + micros * MICROSECOND


def _date(micros: int) -> date:
    return _instant(micros).astimezone(UTC).date()
