"""Sample input as producers land it: a file of JSON Lines per hour, out of order within a bound.

The same options give the same bytes everywhere. A file holds what *arrived* in its hour: an event
reaches it up to five minutes after it happened, and a late one hours after that.
"""

import bisect
import itertools
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyarrow import fs

from include.fold.admission import EPOCH, MICROSECOND
from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.settings import Field, Source

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
    """Return the row as it should be; its key is the source's first field."""
    first, number = source.fields[0], arrival.key
    named = f"{first.name.removesuffix('_id')}-{number:05}"
    row: Row = {first.name: number if first.type == "bigint" else named}
    at = EPOCH + timedelta(microseconds=arrival.event_time_us)
    row[source.time_field] = f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"
    for field in source.fields[1:]:
        row[field.name] = _value(field, arrival.draw)
    return row


def _value(field: Field, draw: float) -> int | float | str:
    if field.type == "bigint":
        return int(draw * 1000)
    if field.type == "double":
        return int(draw * 10_000) / 100
    words = WORDS.get(field.name, (field.name,))
    return words[int(draw * len(words))]


def _line(source: Source, arrival: Arrival) -> str:
    """Return the row as JSON, or one that is refused. Every source has a required first field and a time."""
    row = row_of(source, arrival)
    time, key = source.time_field, source.fields[0].name
    if arrival.spoil is None:
        return f"{json.dumps(row)}\n"
    spoiled: Sequence[Row] = (
        {**row, key: None},
        {**row, time: "2999-12-31T23:59:59.000000Z"},
        {**row, time: row[time].removesuffix("Z")},
        {**row, time: "yesterday"},
        row,  # cut off below, as by a producer that was killed
    )
    number = int(arrival.spoil * len(spoiled))
    text = json.dumps(spoiled[number])
    return f"{text[:5] if number == len(spoiled) - 1 else text}\n"


HOUR_US = timedelta(hours=1) // MICROSECOND
MINUTE_US = timedelta(minutes=1) // MICROSECOND
DISORDER_US = 5 * MINUTE_US  # the longest way of a row to its file
LATE_BY_HOURS = (1, 6)  # beyond that


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the sample of one source."""

    start: datetime
    seed: int = 1
    keys: int = 200
    events: int = 20_000
    span_hours: float = 25  # a day, and the hour after it, in which the day's rows are complete
    late_share: float = 0.01
    malformed_share: float = 0.005
    duplicate_share: float = 0.005


class Summary(NamedTuple):
    """The counts of a sample."""

    files: int
    rows: int
    malformed: int
    duplicates: int
    late: int


def generate(lake: Lake, source: Source, options: Options) -> Summary:
    """Land the files of one source; LakeError when one is there already with other content."""
    arrivals, duplicates, late = draw_arrivals(source, options)
    files = 0
    for hour, rows in itertools.groupby(arrivals, lambda row: row.arrived_us // HOUR_US):
        content = "".join(_line(source, row) for row in rows).encode()
        produced = EPOCH + timedelta(hours=hour)
        # With the seed, so that a second sample of the same hours has other files.
        name = f"{source.name}-{produced:%Y-%m-%dT%H}-{options.seed}.jsonl"
        _land(lake, source, name, content, (hour + 1) * HOUR_US)
        files += 1
    malformed = sum(row.spoil is not None for row in arrivals)
    return Summary(files, len(arrivals), malformed, duplicates=duplicates, late=late)


def draw_arrivals(source: Source, options: Options) -> tuple[list[Arrival], int, int]:
    """Draw all rows in the order they arrive; return them with the numbers of duplicates and late ones."""
    # Only random(): the one method whose numbers Python promises to keep.
    draw = random.Random(f"{options.seed}/{source.name}").random  # noqa: S311 (to be repeated)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, options.keys + 1)))
    start_us = (options.start - EPOCH) // MICROSECOND
    arrivals: list[Arrival] = []
    duplicates = late = 0
    for _ in range(options.events):
        event_time_us = start_us + int(draw() * options.span_hours * HOUR_US)
        key = bisect.bisect(weights, draw() * weights[-1]) + 1
        value = draw()
        spoil = draw() if draw() < options.malformed_share else None
        copies = 2 if draw() < options.duplicate_share else 1
        duplicates += copies - 1
        for _ in range(copies):
            delay_us = int(draw() * DISORDER_US)
            if draw() < options.late_share:
                shortest, longest = LATE_BY_HOURS
                hours = shortest + draw() * (longest - shortest)
                delay_us = int(DISORDER_US + hours * HOUR_US)
                late += 1
            arrived_us = event_time_us + delay_us
            arrivals.append(
                Arrival(arrived_us, len(arrivals), event_time_us, key=key, draw=value, spoil=spoil)
            )
    return sorted(arrivals), duplicates, late


def _land(lake: Lake, source: Source, name: str, content: bytes, produced_us: int) -> None:
    folder = lake.path_in_filesystem(lake.landing(source.name))
    path, hidden = f"{folder}/{name}", f"{folder}/_{name}"
    if lake.filesystem.get_file_info(path).type == fs.FileType.File:
        with lake.filesystem.open_input_file(path) as file:
            if bytes(file.read()) == content:
                return
        raise LakeError(
            f"{path} is there with other content, and ingestion never takes a file twice: "
            "give another --seed or --start, or an empty lake"
        )
    lake.filesystem.create_dir(folder, recursive=True)
    with lake.filesystem.open_output_stream(hidden) as file:
        file.write(content)
    if isinstance(lake.filesystem, fs.LocalFileSystem):
        # Ingestion takes files by age: those of an earlier hour first.
        os.utime(hidden, ns=(produced_us * 1000, produced_us * 1000))
    lake.filesystem.move(hidden, path)


def sample_start() -> datetime:
    """Return the midnight at which the last day began that was over an hour ago: the sample has 25 hours."""
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    return an_hour_ago.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


def land_samples(lake: Lake, sources: Sequence[Source], options: Options) -> Iterator[str]:
    """Land the files of each source; yields a line of counts for each. LakeError when it cannot."""
    for source in (each for each in sources if not each.is_derived):
        try:
            summary = generate(lake, source, options)
        except (OSError, OverflowError) as error:  # of the disk, or behind the year 9999
            raise LakeError(f"{lake.landing(source.name)} cannot be written: {error}") from error
        counts = " ".join(f"{key}={count}" for key, count in summary._asdict().items())
        yield f"{lake.landing(source.name)}: {counts}"
