"""Run a small stream, so that the JVM has loaded the classes of jobs when it archives them.

Set-up runs it once (include/setup/class_archive.py). Its lake is a temporary folder.
"""

from collections.abc import Iterator
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import NamedTuple

from include.fold.definition import map_groups_with_state
from include.fold.group_state import GroupState
from include.ingest.ingest import ingest
from include.lake.paths import Lake
from include.sample.sample_data import Options, generate, sample_start
from include.settings import Field, Source, Stream
from include.spark.conf import STATE
from include.stream_definition import load_definition
from spark_jobs.engines.engine import FoldedBatch, LiveQuery
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, spark_session


class Event(NamedTuple):
    key: str
    event_time_us: int


class Total(NamedTuple):
    total: int


class CountOfKey(NamedTuple):
    key: str
    total: int


def count(key: str, events: Iterator[Event], state: GroupState[Total]) -> CountOfKey:
    """The events of a key so far."""
    before = state.get.total if state.exists else 0
    total = before + sum(1 for _ in events)
    state.update(Total(total))
    return CountOfKey(key, total)


def project(key: str, state: Total) -> CountOfKey:
    return CountOfKey(key, state.total)


FOLD = map_groups_with_state(
    count,
    key="key",
    event=Event,
    state=Total,
    output=CountOfKey,
    output_mode="update",
    project=project,
)
SOURCE = Source(
    name="events",
    time_field="at",
    comment="Events",
    fields=(Field(name="key", type="string", comment="A key"),),
)
STREAM = Stream(
    name="counts",
    source=SOURCE.name,
    schedule="0 * * * *",
    watermark_delay=timedelta(0),
    fold=FOLD,
    comments={"key": "A key", "total": "Its events"},
    buckets=2,
    state_partitions=2,
)


def run_stream(engine: SparkEngine, lake: Lake) -> None:
    """Runs of a small batch, and of one that Spark writes: the former loads the state, too."""
    table = engine.product_table(lake, STREAM.name, load_definition(STREAM))

    def write(folded: FoldedBatch, batch_id: int) -> None:
        if folded.counts["rows_out"]:
            table.write_once(folded.emitted, "archive", batch_id, {})

    for number, is_small in enumerate((True, False, True)):
        start = sample_start() + timedelta(hours=8 * number)
        generate(lake, SOURCE, Options(start=start, events=100, span_hours=1))
        ingest(lake, SOURCE)
        checkpoint = lake.checkpoint(STREAM.name, 0)
        query = LiveQuery(lake, STREAM, FOLD, checkpoint, settings=STATE, is_small=is_small)
        engine.drain(query, write)


def main() -> None:
    with TemporaryDirectory(prefix="archive-") as folder:
        lake = Lake(folder)
        run_stream(SparkEngine(spark_session("archive_classes")), lake)


if __name__ == "__main__":
    exit_with_main(main)
