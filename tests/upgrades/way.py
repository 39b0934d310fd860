"""A lake's way up to another Spark, down again and up once more, part by part.

Each part is run by the Spark that its name says (`python -m tests.upgrades.way LAKE NUMBER`, with the
Python of a project folder): what one leaves, in the middle of a batch, too, the other goes on from.
After each part the tables are compared with SQL over the landed files.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from include.care.check_checkpoint import check_checkpoint
from include.coverage.table_coverage import table_coverage
from include.fold.instants import micros_of
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.plans.open_stream import open_stream
from include.plans.plan_recompute import settled_until
from include.plans.reseed_options import ReseedOptions
from include.registry import source_named, stream_named
from include.sample.sample_data import Options, generate
from include.settings import Stream
from spark_jobs.compact_state import compact
from spark_jobs.engines.checkpointed_states import find_unreadable
from spark_jobs.engines.engine import FoldedBatch, LiveQuery, WriteBatch
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import close_state_stores
from spark_jobs.live_savepoint import write_live_savepoint
from spark_jobs.recompute_interval import recompute
from spark_jobs.reseed_stream import reseed
from spark_jobs.run_stream import drain
from tests.e2e.lake_of_0_6.make import session
from tests.landed_sql import oracle_rows, table_rows

# An update table, one that appends by timeouts, one that appends for each event.
STREAMS = tuple(map(stream_named, ("user_counts", "user_sessions", "device_signals")))
START, HOUR = datetime(2026, 3, 1, tzinfo=UTC), timedelta(hours=1)


class Walker(NamedTuple):
    """Who goes a part of the way: an engine on a lake."""

    engine: SparkEngine
    lake: Lake

    def run(self, hours: float, span: float = 3) -> None:
        """Land so many hours of events from an hour on, and run each stream."""
        self.land(hours, span)
        for stream in STREAMS:
            drain(self.engine, self.lake, stream)

    def land(self, hours: float, span: float = 3) -> None:
        start = START + hours * HOUR
        options = Options(
            start=start, seed=int(hours) + 1, events=600, span_hours=span, late_share=0
        )
        for source in map(source_named, sorted({stream.source for stream in STREAMS})):
            staging = Lake(f"{self.lake.root}-{hours}")
            generate(staging, source, options)
            folder = Path(self.lake.landing(source.name))
            folder.mkdir(parents=True, exist_ok=True)
            for file in Path(staging.landing(source.name)).iterdir():
                file.rename(folder / f"{hours}-{file.name}")
            ingest(self.lake, source, interval_end=start + span * HOUR)

    def save(self) -> None:
        for stream in STREAMS:
            write_live_savepoint(
                self.engine, open_stream(self.lake, stream), "upgrade", "on_demand"
            )


class KilledError(Exception):
    """Stands for the death of a job between its table's commit and its batch's."""


class Killed(SparkEngine):
    """An engine whose jobs die there."""

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        def write_and_die(folded: FoldedBatch, batch_id: int) -> None:
            write(folded, batch_id)
            raise KilledError

        return super().drain(query, write_and_die)


def begin(walker: Walker) -> None:
    walker.run(0)
    walker.save()


def go_on(walker: Walker) -> None:
    walker.run(3)
    walker.save()


def break_off(walker: Walker) -> None:
    """Leave a batch of each stream begun, its rows in the table; the tables are then ahead."""
    walker.land(6)
    killed = Killed(walker.engine._spark)
    for stream in STREAMS:
        try:
            drain(killed, walker.lake, stream)
        except (KilledError, StreamingQueryException):
            continue
        raise AssertionError(f"{stream.name} was to die in its batch")


def take_over(walker: Walker) -> None:
    for stream in STREAMS:
        drain(walker.engine, walker.lake, stream)
    walker.run(9)
    for stream in STREAMS:
        compact(walker.engine, walker.lake, stream)
    walker.save()


def backfill(walker: Walker) -> None:
    """Of an hour with late rows, from a savepoint of the other version."""
    walker.run(11, span=4)  # its first hour lies before the watermark
    stream = stream_named("device_signals")
    recompute(walker.engine, walker.lake, stream, START + 11 * HOUR, START + 12 * HOUR)


def reseed_all(walker: Walker) -> None:
    for stream in STREAMS:
        reseed(walker.engine, walker.lake, stream, ReseedOptions())
    walker.run(16)


class Part(NamedTuple):
    """A part of the way; `is_new`: by the Spark to go to, not by the one to come from."""

    is_new: bool
    says: str
    walk: Callable[[Walker], None]
    # Which tables equal SQL after it: all, none as batches are open, or those without late rows.
    is_compared: bool = True


WAY = (
    Part(False, "a lake is made; a savepoint", begin),
    Part(True, "up: it is opened, run on; a savepoint", go_on),
    Part(True, "a batch of each stream is cut off before its commit", break_off, False),
    Part(False, "down: the batches are finished; run on, compacted; a savepoint", take_over),
    Part(True, "up again: late rows; a backfill of their hour", backfill, False),
    Part(False, "down again: a reseed of each stream; run on", reseed_all),
    Part(True, "up at last: run on", lambda walker: walker.run(19)),
)


def wrong_of(walker: Walker, part: Part) -> list[str]:
    """What is not as it must be after a part."""
    found = [each for stream in STREAMS for each in _wrong_of(walker, stream, part)]
    if not read_ops(walker.lake, "savepoints").num_rows:
        found.append("no savepoint")
    return found


def _wrong_of(walker: Walker, stream: Stream, part: Part) -> list[str]:
    opened, lake = open_stream(walker.lake, stream), walker.lake
    said = [
        each.detail for each in check_checkpoint(lake, stream).findings if each.severity == "error"
    ]
    if why := find_unreadable(walker.engine._spark, opened.checkpoint, opened.fold):
        said.append(f"state is not read: {why}")
    until = settled_until(lake, stream.name)
    if part.is_compared and (until is None or not _equals(lake, stream, until)):
        said.append("the table differs from SQL over what has landed")
    if part.is_compared and table_coverage(lake, stream).coverage.wrong:
        said.append("the ledger says that the table is not right")
    return [f"{stream.name}: {each}" for each in said]


def _equals(lake: Lake, stream: Stream, until: datetime) -> bool:
    expected = oracle_rows(lake, stream, micros_of(until))
    return table_rows(lake, stream.name) == expected and expected.total() > 0


def main(folder: str, number: int) -> int:
    """Go a part; 1 when something is wrong then, which is said."""
    part, spark = WAY[number], session()
    walker = Walker(SparkEngine(spark), Lake(folder))
    Path(folder).mkdir(exist_ok=True)
    part.walk(walker)
    wrong = wrong_of(walker, part)
    sys.stdout.write("".join(f"wrong: {line}\n" for line in wrong))
    _end(spark)
    return int(bool(wrong))


def _end(spark: SparkSession) -> None:
    close_state_stores(spark)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
