"""Where a source's rows come from: what has come and is not taken, and how it is read.

What differs between landed files, topics and tables is asked for here. Their readers are imported
when they are: the client of a topic is a package that no other source needs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from include.lake.paths import Lake
from include.landing.arrivals import Arrivals, Listed, OriginError
from include.landing.batch import Batch
from include.landing.ingest_position import bytes_waiting, files_waiting, read_position
from include.landing.landed_content import landed_files, landing_root
from include.landing.parse_files import Outcome, outcomes_of_file
from include.landing.quarantined_rows import as_begun, files_without_events
from include.origins import DeltaTable, KafkaTopic
from include.settings import Source

if TYPE_CHECKING:
    from include.landing.delta_versions import TableArrivals
    from include.landing.kafka_offsets import TopicArrivals

# All outcomes of one file, or range, of a batch.
ReadPart = Callable[[str], Iterator[Outcome]]


def arrivals_of(lake: Lake, source: Source) -> Arrivals:
    """What is there now; OriginError when that cannot be seen."""
    if isinstance(source.origin, KafkaTopic):
        return _topic_arrivals(source.origin)
    if isinstance(source.origin, DeltaTable):
        return _table_arrivals(source.origin)
    return Listed(landed_files(lake, source.name))


def reader_of_parts(lake: Lake, source: Source, batch: Batch) -> ReadPart:
    """What gives the outcomes of one of the batch's files, wherever it is called."""
    if isinstance(source.origin, KafkaTopic):
        from include.landing.kafka_offsets import events_before
        from include.landing.kafka_rows import outcomes_of_range

        return partial(outcomes_of_range, source, batch, events_before(lake, source, batch))
    if isinstance(source.origin, DeltaTable):
        from include.landing.delta_commits import outcomes_of_added

        return partial(outcomes_of_added, source, batch)
    root = landing_root(lake, source.name)
    read = partial(outcomes_of_file, lake, root, source, batch)
    return partial(as_begun, files_without_events(lake, source, batch), read)


def has_arrived(lake: Lake, source: Source) -> bool:
    """Whether a run has something to take, or to fail for: it does that with a row in `ops/runs`."""
    try:
        return waiting(lake, source) > 0
    except OriginError:
        return True


def waiting(lake: Lake, source: Source) -> int:
    """The number of files, or offsets, that no finished batch has taken; 0: nothing to ingest."""
    if isinstance(source.origin, KafkaTopic):
        return _topic_arrivals(source.origin).waiting(read_position(lake, source.name))
    if isinstance(source.origin, DeltaTable):
        return _table_arrivals(source.origin).waiting(read_position(lake, source.name))
    return files_waiting(lake, source.name)


def is_little(lake: Lake, source: Source) -> bool:
    """Whether what waits is better taken in without a JVM; so is a failure."""
    try:
        return _is_little(lake, source)
    except OriginError:
        return True


def _is_little(lake: Lake, source: Source) -> bool:
    if isinstance(source.origin, KafkaTopic):
        return waiting(lake, source) <= source.origin.spark_messages
    if isinstance(source.origin, DeltaTable):
        arrived = _table_arrivals(source.origin)
        return arrived.waiting_bytes(read_position(lake, source.name)) <= source.spark_bytes
    return bytes_waiting(lake, source.name) <= source.spark_bytes


def behind(lake: Lake, source: Source) -> str | None:
    """What is known to be missing once all was drained; None when nothing is."""
    if not isinstance(source.origin, KafkaTopic):
        count = waiting(lake, source)
        return f"{count} more file(s) have come to {place_of(source)} meanwhile" if count else None
    arrived = _topic_arrivals(source.origin)
    if count := arrived.waiting(read_position(lake, source.name)):
        return f"{count} more message(s) have come to {place_of(source)} meanwhile"
    return f"a transaction is open in {place_of(source)}" if arrived.is_unsettled() else None


def place_of(source: Source) -> str:
    """Where rows of the source are before they are taken, for people."""
    if isinstance(source.origin, KafkaTopic):
        return f"topic {source.origin.topic}"
    if isinstance(source.origin, DeltaTable):
        return f"the Delta table {source.origin.uri}"
    return f"landing/{source.name}"


def _topic_arrivals(origin: KafkaTopic) -> "TopicArrivals":
    from include.landing import kafka_client
    from include.landing.kafka_offsets import TopicArrivals

    return TopicArrivals(origin, kafka_client.open_topic(origin).state())


def _table_arrivals(origin: DeltaTable) -> "TableArrivals":
    from include.landing.delta_versions import TableArrivals

    return TableArrivals(origin)
