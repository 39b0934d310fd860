"""The files of a landing folder as Spark rows: one per landed row, and one per file.

Spark lists the files and cuts them into batches; which files a batch has is read from its
checkpoint, and the workers open them themselves. Spark's own reading would pass over
files of zero bytes, and take a large file through the JVM in one piece.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from include.lake.paths import Lake
from include.landing.landed_file import open_rows
from include.landing.landed_row import DAY_US, Event, RefusedError, UnreadableFileError, to_event
from include.landing.position import PlannedBatch, landing_root
from include.settings import Field, Source

# What a row of `parse_files` is.
FILE, ACCEPTED, REFUSED = "file", "accepted", "refused"
WHOLE_FILE = 0  # the row number of a file that could not be read

# Spark forgets files older than this, against the newest, and then passes over new ones
# that come with an old time. The default is a week.
NEVER = "36500d"
ROWS_AT_ONCE = 10_000

OUTCOME = {
    "kind": "string",
    "source_file": "string",
    "row_number": "bigint",
    "rows_in_file": "bigint",  # of a file: what `accepted` and `refused` must add up to
    "event_time_us": "bigint",
    "event_day": "int",
    "quarantine_id": "string",
    "reason_code": "string",
    "reason": "string",
    "raw": "string",
}
ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}

Outcome = dict[str, Any]


def stream_of_batches(spark: SparkSession, lake: Lake, source: Source) -> DataFrame:
    """A stream that plans batches of landed files; its rows are not to be read."""
    return (
        spark.readStream.format("text")
        .option("recursiveFileLookup", "true")
        .option("maxBytesPerTrigger", str(source.commit_bytes))
        .option("maxFileAge", NEVER)
        .load(_without_globs(lake.landing(source.name)))
    )


def parse_batch(spark: SparkSession, lake: Lake, source: Source, batch: PlannedBatch) -> DataFrame:
    """All rows of the batch's files, and the files, as `outcome_schema` has them."""
    files = spark.createDataFrame([(name,) for name in batch.files], "source_file STRING")
    root = landing_root(lake, source.name)
    parse = partial(outcomes_of_file, lake, root, source, batch.ingested_at_us)
    schema = outcome_schema(source)
    return files.mapInArrow(in_arrow(parse, schema), ddl(schema))


def outcome_schema(source: Source) -> dict[str, str]:
    """The columns of a parsed row: the source's fields, then how it was judged."""
    return {value_column(field): field.type for field in source.fields} | OUTCOME


def value_column(field: Field) -> str:
    """The field's column in a parsed row; a field may be called `raw` or `reason`, too."""
    return f"value_{field.name}"


def ddl(schema: dict[str, str]) -> str:
    """The schema as Spark spells it."""
    return ", ".join(f"`{name}` {kind}" for name, kind in schema.items())


def in_arrow(
    parse: Callable[[Outcome], Iterator[Outcome]], schema: dict[str, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """`parse` for `mapInArrow`: any number of rows of `schema` for each row given."""
    arrow_schema = pa.schema([(name, ARROW_TYPES[kind]) for name, kind in schema.items()])

    def parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = chain.from_iterable(batch.to_pylist() for batch in batches)
        rows = chain.from_iterable(map(parse, given))
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            yield pa.RecordBatch.from_pylist(chunk, schema=arrow_schema)

    return parse_batches


def outcomes_of_file(
    lake: Lake, root: str, source: Source, ingested_at_us: int, file: Outcome
) -> Iterator[Outcome]:
    """Every row of one file, accepted or refused, and last the file with their number."""
    name = file["source_file"]
    read = partial(_content, lake, f"{root}/{name}", source.max_file_bytes)
    rows_in_file = 0
    for outcome in _outcomes(read, source, name, ingested_at_us):
        rows_in_file += 1
        yield outcome | {"source_file": name}
    yield {"kind": FILE, "source_file": name, "rows_in_file": rows_in_file}


def _outcomes(
    read: Callable[[], bytes], source: Source, name: str, ingested_at_us: int
) -> Iterator[Outcome]:
    try:
        rows = open_rows(name, read(), source)
    except UnreadableFileError as error:
        yield refused(name, WHOLE_FILE, RefusedError("unreadable_file", str(error)), None)
        return
    for row_number, item in enumerate(rows.items(), start=1):
        try:
            yield accepted(source, row_number, to_event(source, rows.values(item), ingested_at_us))
        except RefusedError as refusal:
            yield refused(name, row_number, refusal, rows.raw(item))


def _content(lake: Lake, path: str, max_bytes: int) -> bytes:
    try:
        with lake.filesystem.open_input_file(path) as file:
            if file.size() > max_bytes:
                raise UnreadableFileError(
                    f"{file.size()} bytes, more than the {max_bytes} allowed: split it"
                )
            return bytes(file.read())
    except PermissionError as error:
        # Any other failure to read is the lake's and not this file's: it fails the run.
        raise UnreadableFileError(f"permission denied: {error.strerror}") from None


def accepted(source: Source, row_number: int, event: Event) -> Outcome:
    """The outcome of a row that is an event."""
    outcome: Outcome = {
        value_column(field): value for field, value in zip(source.fields, event.values, strict=True)
    }
    outcome["kind"] = ACCEPTED
    outcome["row_number"] = row_number
    outcome["event_time_us"] = event.event_time_us
    outcome["event_day"] = event.event_time_us // DAY_US
    return outcome


def refused(name: str, row_number: int, refusal: RefusedError, raw: str | None) -> Outcome:
    """The outcome of a row that is none; its id is the same each time the file is read."""
    return {
        "kind": REFUSED,
        "row_number": row_number,
        "quarantine_id": quarantine_id(name, row_number),
        "reason_code": refusal.code,
        "reason": refusal.reason,
        "raw": raw,
    }


def quarantine_id(name: str, row_number: int) -> str:
    """The key of a landed row in quarantine, from where it stands in landing."""
    return hashlib.sha256(f"{row_number} {name}".encode()).hexdigest()[:32]


def _without_globs(path: str) -> str:
    """The path with what Hadoop would read as a pattern taken literally."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in path)
