"""Which messages of a batch were events when it was begun: a registry may know more, or less, since.

All else that judges a message is in the source's entry, which a batch keeps (planned_entry.py).
"""

from functools import reduce
from operator import or_

import pyarrow.compute as pc

from include.fold.instants import instant_of
from include.lake.paths import Lake
from include.lake.read_tables import dataset_of
from include.landing.batch import Batch
from include.landing.ingest_position import is_batch_in
from include.landing.kafka_offsets import range_named
from include.origins import KafkaTopic
from include.settings import Source


def events_before(lake: Lake, source: Source, batch: Batch) -> frozenset[tuple[int, int]] | None:
    """By partition and offset, those that bronze has of a batch that was begun. None where that is
    not known, as no table has anything of it, and where no registry has a say."""
    origin = source.origin
    assert isinstance(origin, KafkaTopic)
    if origin.schema_registry is None:
        return None
    if is_batch_in(lake, source.name, "bronze", batch):
        return events_in_bronze(lake, source, batch)
    # Which is written behind bronze: so there was no event.
    return frozenset() if is_batch_in(lake, source.name, "quarantine", batch) else None


def events_in_bronze(lake: Lake, source: Source, batch: Batch) -> frozenset[tuple[int, int]]:
    """By partition and offset, those of the batch alone: one that was taken in again of quarantine is
    called otherwise, and of a topic that was made anew since, offsets are of older commits."""
    partition, offset, file = map(pc.field, ("kafka_partition", "kafka_offset", "source_file"))
    ranges = [
        (file == f"{part.topic}/{part.partition}")
        & (partition == part.partition)
        & (offset >= part.first)
        & (offset < part.until)
        for part in map(range_named, batch.files)
    ]
    within = reduce(or_, ranges) & (pc.field("ingested_at") >= instant_of(batch.ingested_at_us))
    bronze = dataset_of(lake.bronze(source.name))
    rows = bronze.to_table(columns=["kafka_partition", "kafka_offset"], filter=within)
    return frozenset(zip(*(column.to_pylist() for column in rows.columns), strict=True))
