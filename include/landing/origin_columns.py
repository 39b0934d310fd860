"""The columns that a source's rows have for where they come from, beside `source_file`."""

from include.lake.columns import Column
from include.origins import KafkaTopic
from include.settings import Source

OF_KAFKA = (
    Column("kafka_partition", "int", "The partition of the topic; null for a clock row"),
    Column("kafka_offset", "bigint", "Its offset in that partition; null for a clock row"),
)
MESSAGE = Column(
    "kafka_message", "string", "The message's key, headers and time, as JSON, for re-ingestion"
)


def origin_columns(source: Source) -> tuple[Column, ...]:
    """Those of its bronze."""
    return OF_KAFKA if isinstance(source.origin, KafkaTopic) else ()


def refused_columns(source: Source) -> tuple[Column, ...]:
    """Those of its quarantine."""
    return (*OF_KAFKA, MESSAGE) if isinstance(source.origin, KafkaTopic) else ()
