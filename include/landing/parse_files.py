"""The rows of landed files and what becomes of each: one outcome per row, and one per file.

The same code runs here, in a few processes (`parse_here`), and on Spark's workers
(spark_jobs/tables/landing.py), when much has landed.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, islice

import pyarrow as pa

from include.lake.columns import arrow_type
from include.lake.paths import Lake
from include.landing.batch import Batch, Split
from include.landing.connector import Outcome, ReadSplit, refused_columns
from include.landing.landed_file import folder_values, open_rows, read_landed
from include.landing.landed_row import DAY_US, Event, reader_of_events
from include.landing.landed_values import UNREADABLE_FILE, RefusedError, UnreadableFileError
from include.landing.rescue import Rescue
from include.settings import MIB, RESCUED, Field, Source

# What an outcome is of.
FILE, ACCEPTED, REFUSED = "file", "accepted", "refused"
WHOLE_FILE = 0  # the row number of a file that could not be read
ROWS_AT_ONCE = 10_000
# Of a batch; below it a second process would take longer to start than it saves.
BYTES_A_PROCESS = 4 * MIB

OUTCOME = {
    "kind": "string",
    "source_file": "string",
    "row_number": "bigint",
    "rows_in_file": "bigint",  # of a file: what `accepted` and `refused` must add up to
    "rows_skipped": "bigint",  # beside these: null is none
    "event_time_us": "bigint",
    "event_day": "int",
    "quarantine_id": "string",
    "reason_code": "string",
    "reason": "string",
    "raw": "string",
    RESCUED: "string",  # of a file: JSON, of each that is no field of the source its rows
}


def outcome_schema(source: Source) -> dict[str, str]:
    """The columns of an outcome: the source's fields, then how the row was judged."""
    added = {column.name: column.type for column in refused_columns(source)}
    return {value_column(field): field.type for field in source.fields} | OUTCOME | added


def value_column(field: Field) -> str:
    """The field's column in an outcome; a field may be called `raw` or `reason`, too."""
    return f"value_{field.name}"


def arrow_schema(schema: dict[str, str]) -> pa.Schema:
    """The same in Arrow's types."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in schema.items()])


def in_batches(rows: Iterator[Outcome], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Outcomes as Arrow has them, some thousands at once; fewer where their texts are long."""
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        # By a table, which has as many arrays as it takes: one of Arrow's ends at 2 GiB.
        yield from pa.Table.from_pylist(chunk, schema=schema).to_batches()


def parse_here(source: Source, read: ReadSplit, splits: Sequence[Split]) -> pa.Table:
    """The outcomes of all rows of the splits, and of each; by several processes if it pays."""
    all_bytes = sum(split.bytes for split in splits)
    processes = min(_processors(), all_bytes // BYTES_A_PROCESS, len(splits))
    parse = partial(_parse_some, source, read)
    if processes < 2:
        return pa.Table.from_batches(parse(splits), arrow_schema(outcome_schema(source)))
    # Not forked: Arrow's threads would be missing in the child.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        parts = chain.from_iterable(pool.map(parse, _shares(splits, processes * 2)))
        return pa.Table.from_batches(parts, arrow_schema(outcome_schema(source)))


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _shares(splits: Sequence[Split], count: int) -> list[list[Split]]:
    """In about `count` parts of about the same size, in order."""
    most = sum(split.bytes for split in splits) / count
    shares: list[list[Split]] = [[]]
    share_bytes = 0
    for split in splits:
        if shares[-1] and share_bytes + split.bytes > most:
            shares.append([])
            share_bytes = 0
        shares[-1].append(split)
        share_bytes += split.bytes
    return shares


def _parse_some(source: Source, read: ReadSplit, splits: Sequence[Split]) -> list[pa.RecordBatch]:
    rows = chain.from_iterable(map(read, splits))
    return list(in_batches(rows, arrow_schema(outcome_schema(source))))


def outcomes_of_file(
    lake: Lake, root: str, source: Source, batch: Batch, split: Split
) -> Iterator[Outcome]:
    """Every row of one file of `batch`, accepted or refused, and last the file with their number.

    FileGoneError when the file is gone.
    """
    name = split.source_file
    read = partial(read_landed, lake, root, name, source.max_file_bytes)
    yield from outcomes_of_content(read, source, name, batch.ingested_at_us)


def file_outcome(name: str, rows_in_file: int, rescue: Rescue | None = None) -> Outcome:
    """What there is to say of a file as a whole, once all of its rows are read."""
    file: Outcome = {"kind": FILE, "source_file": name, "rows_in_file": rows_in_file}
    return file | {RESCUED: rescue and rescue.fields()}


def outcomes_of_content(
    read: Callable[[], bytes], source: Source, name: str, ingested_at_us: int
) -> Iterator[Outcome]:
    """Those of the rows of one file, whose content `read` gives, or of one that is unreadable; and last
    the file with their number."""
    rescue, rows_in_file = Rescue(source), 0
    for outcome in _outcomes(read, source, name, ingested_at_us, rescue):
        rows_in_file += 1
        yield outcome | {"source_file": name}
    yield file_outcome(name, rows_in_file, rescue)


def _outcomes(
    read: Callable[[], bytes], source: Source, name: str, ingested_at_us: int, rescue: Rescue
) -> Iterator[Outcome]:
    try:
        folder, rows = folder_values(name, source), open_rows(name, read(), source)
    except UnreadableFileError as error:
        yield refused(name, WHOLE_FILE, RefusedError(UNREADABLE_FILE, str(error)), None)
        return
    to_event, is_known = reader_of_events(source), rescue.is_known
    for row_number, item in enumerate(rows.items(), start=1):
        try:
            values = {**rows.values(item), **folder} if folder else rows.values(item)
            event = to_event(values, ingested_at_us)
            text = None if is_known(values) else rescue.text(values)
            yield accepted(source, row_number, event, text)
        except RefusedError as refusal:
            yield refused(name, row_number, refusal, rows.raw(item))


def accepted(source: Source, row_number: int, event: Event, rescued: str | None) -> Outcome:
    """The outcome of a row that is an event, and of what `Rescue` kept of it."""
    outcome: Outcome = {
        value_column(field): value for field, value in zip(source.fields, event.values, strict=True)
    }
    outcome["kind"] = ACCEPTED
    outcome["row_number"] = row_number
    outcome["event_time_us"] = event.event_time_us
    outcome["event_day"] = event.event_time_us // DAY_US
    outcome[RESCUED] = rescued
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


# How bronze names a row of a re-ingestion: FILE#QUARANTINE_ID. Quarantine has the file under its own name.
REINGESTED_ROW = "#[0-9a-f]{32}$"


def quarantine_id(name: str, row_number: int) -> str:
    """The key of a landed row in quarantine, from where it stands in landing."""
    return hashlib.sha256(f"{row_number} {name}".encode()).hexdigest()[:32]
