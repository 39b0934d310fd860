"""`bronze/<source>` and `quarantine/<source>`, made with their documented columns; whoever writes them."""

from include.lake.columns import APPEND_ONLY, Column, create_if_absent
from include.lake.paths import Lake
from include.landing.origin_columns import origin_columns, refused_columns
from include.settings import SettingsError, Source

FEATURES = {"delta.enableDeletionVectors": "false"}
# A stream's position stays at the last commit with rows. Should the log be cut there while its
# source is silent (Delta's default is 30 days), the stream could not go on: before that it reads
# a still row (include/checkpoint/log_retention.py), and this is the time that it has for it.
BRONZE_FEATURES = {
    APPEND_ONLY: "true",
    "delta.logRetentionDuration": "interval 90 days",
}

QUARANTINE_COLUMNS = (
    Column("quarantine_id", "string", "Key: of the file's name and the row's number in it"),
    Column("reason_code", "string", "Why it was refused: a stable word, such as wrong_type"),
    Column("reason", "string", "Why it was refused, for people"),
    Column(
        "raw",
        "string",
        "The row as landed (CSV: after its header; Parquet: as JSON); null for a whole file",
    ),
    Column("source_file", "string", "The file it landed in, below landing/<source>"),
    Column("row_number", "bigint", "Its number in the file, from 1; 0 for a whole file"),
    Column("ingested_at", "timestamp", "When ingestion refused it"),
    Column("resolved_at", "timestamp", "When it was taken in after all; null while open"),
    Column("correction", "string", "The last corrected text given to re-ingestion; null if none"),
)


def create_tables(lake: Lake, source: Source) -> None:
    """Make bronze and quarantine of the source, where they are not there yet."""
    create_if_absent(
        lake.bronze(source.name),
        bronze_columns(source),
        f"{source.comment}: the events as they were ingested, append-only",
        FEATURES | BRONZE_FEATURES,
        partition_by=["event_date"],
    )
    create_if_absent(
        lake.quarantine(source.name),
        quarantine_columns(source),
        f"{source.comment}: the landed rows and files that are no events",
        FEATURES,
    )


def quarantine_columns(source: Source) -> tuple[Column, ...]:
    """The columns of quarantine: those of all sources, then what is known of a message."""
    return (*QUARANTINE_COLUMNS, *refused_columns(source))


def bronze_columns(source: Source) -> tuple[Column, ...]:
    """The columns of bronze: the source's fields, then what ingestion adds.

    Raises SettingsError when a field has the name of a column that ingestion adds.
    """
    refuse_taken(source)
    fields = (Column(field.name, field.type, field.comment) for field in source.fields)
    return (*fields, *added_columns(source))


def refuse_taken(source: Source) -> None:
    """SettingsError when a field has the name of a column that ingestion adds, in whatever case."""
    added = {column.name for column in added_columns(source)}
    for field in source.fields:
        if field.name.lower() in added:
            raise SettingsError(
                f"source {source.name}: bronze itself has a column {field.name.lower()}: call the field "
                f"{field.name} something else, with path={field.landed!r}",
                subject=field.name,
            )


def added_columns(source: Source) -> tuple[Column, ...]:
    """What ingestion adds to the fields."""
    reached = "The newest least(event_time, ingested_at) of all earlier commits"
    if source.watermark_per is not None:
        reached += ", the least of those of the groups that were not idle, and never going back"
    return (
        Column("event_time", "timestamp", f"When it happened: the landed {source.time_field}"),
        Column("event_date", "date", "The UTC date of event_time"),
        Column(
            "ingested_at", "timestamp", "When ingestion took it in: later than in earlier commits"
        ),
        Column("arrival_watermark", "timestamp", f"{reached}; null in the first"),
        Column(
            "commit_watermark", "timestamp", "arrival_watermark with this commit's rows as well"
        ),
        Column(
            "source_file",
            "string",
            "The file it landed in, below landing/<source>; #<quarantine_id> if re-ingested",
        ),
        Column("is_clock", "boolean", "No event: only moves the watermark", nullable=False),
        *origin_columns(source),
    )
