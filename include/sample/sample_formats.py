"""How the rows of sample data are written, well-formed and malformed, in each format."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from include.settings import Field, Source

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

WORDS: Mapping[str, Sequence[str]] = {
    "event_type": ("view", "view", "view", "click", "purchase"),
    "level": ("INFO", "INFO", "INFO", "INFO", "WARNING", "ERROR"),
    "message": ("started", "request served", "slow answer, will retry", 'got "503"', "stopped"),
}

Row = dict[str, Any]


class Arrival(NamedTuple):
    """One row on its way into a file; the order of arrival is the order in the file."""

    arrived_us: int
    number: int
    event_time_us: int
    key: int
    draw: float  # in [0, 1): decides the other fields
    spoil: float | None  # in [0, 1): decides how the row is malformed


def row_of(source: Source, arrival: Arrival) -> Row:
    """The row as it should be; its key is the source's first field."""
    key_field = source.fields[0]
    row: Row = {key_field.name: _key(key_field, arrival.key)}
    row[source.time_field] = _iso(arrival.event_time_us)
    for field in source.fields[1:]:
        row[field.name] = _value(field, arrival.draw)
    return row


def _key(field: Field, number: int) -> int | str:
    return number if field.type == "bigint" else f"{field.name.removesuffix('_id')}-{number:05}"


def _value(field: Field, draw: float) -> int | float | str:
    if field.type == "bigint":
        return int(draw * 1000)
    if field.type == "double":
        return int(draw * 10_000) / 100
    words = WORDS.get(field.name, (field.name,))
    return words[int(draw * len(words))]


def _iso(instant_us: int) -> str:
    instant = EPOCH + timedelta(microseconds=instant_us)
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")


# Ways to be malformed. Every source has a required first field and a time.


def _without_key(source: Source, row: Row) -> Row:
    return {**row, source.fields[0].name: None}


def _from_the_future(source: Source, row: Row) -> Row:
    return {**row, source.time_field: "2999-12-31T23:59:59.000000Z"}


def _without_zone(source: Source, row: Row) -> Row:
    return {**row, source.time_field: row[source.time_field].removesuffix("Z")}


def _not_a_time(source: Source, row: Row) -> Row:
    return {**row, source.time_field: "yesterday"}


Spoiler = Callable[[Source, Row], Row]
TYPED_SPOILERS: Sequence[Spoiler] = (_without_key, _from_the_future)
TEXT_SPOILERS: Sequence[Spoiler] = (*TYPED_SPOILERS, _without_zone, _not_a_time)
CUT_AFTER = 5  # characters: neither a JSON object nor all cells of a CSV row


def _spoiled(source: Source, arrival: Arrival, spoilers: Sequence[Spoiler]) -> Row:
    row = row_of(source, arrival)
    return row if arrival.spoil is None else _choose(spoilers, arrival.spoil)(source, row)


def _choose(spoilers: Sequence[Spoiler], draw: float) -> Spoiler:
    return spoilers[int(draw * len(spoilers))]


def _text_line(source: Source, arrival: Arrival, line: Callable[[Row], str]) -> str:
    text = line(_spoiled(source, arrival, TEXT_SPOILERS))
    # A spoiler for most of them; the rest are cut off, as by a producer that was killed.
    is_cut = arrival.spoil is not None and arrival.spoil * 100 % 5 < 1
    return f"{text[:CUT_AFTER]}\n" if is_cut else f"{text}\n"


def _jsonl(source: Source, arrivals: Sequence[Arrival]) -> bytes:
    return "".join(_text_line(source, arrival, json.dumps) for arrival in arrivals).encode()


def _jsonl_gz(source: Source, arrivals: Sequence[Arrival]) -> bytes:
    return gzip.compress(_jsonl(source, arrivals), mtime=0)


def _csv(source: Source, arrivals: Sequence[Arrival]) -> bytes:
    def line(cells: Row) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells.values())
        return text.getvalue()

    header = ",".join(row_of(source, arrivals[0]))
    return "".join(
        [f"{header}\n", *(_text_line(source, arrival, line) for arrival in arrivals)]
    ).encode()


def _parquet(source: Source, arrivals: Sequence[Arrival]) -> bytes:
    rows = [_spoiled(source, arrival, TYPED_SPOILERS) for arrival in arrivals]
    for row in rows:
        row[source.time_field] = datetime.fromisoformat(row[source.time_field])
    types = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
    columns = {field.name: types[field.type] for field in source.fields}
    columns[source.time_field] = pa.timestamp("us", tz="UTC")
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items()))), sink)
    return sink.getvalue()


FORMATS: Mapping[str, Callable[[Source, Sequence[Arrival]], bytes]] = {
    "jsonl": _jsonl,
    "jsonl.gz": _jsonl_gz,
    "csv": _csv,
    "parquet": _parquet,
}
