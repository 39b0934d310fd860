"""What becomes of a row that quarantine has, by today's rules: as it was, or as it is corrected."""

from collections.abc import Iterator, Mapping
from typing import Any

from include.landing.arrivals import OriginError
from include.landing.kafka_rows import judged_again
from include.landing.landed_file import FileGoneError, row_of_raw
from include.landing.landed_row import to_event
from include.landing.landed_values import RefusedError
from include.landing.origin import ReadPart
from include.landing.parse_files import (
    FILE,
    WHOLE_FILE,
    Outcome,
    accepted,
    outcome_schema,
    quarantine_id,
    refused,
)
from include.landing.rescue import Rescue
from include.settings import Source


def outcomes_again(source: Source) -> dict[str, str]:
    """The columns of an outcome; `is_new` marks the rows of a file that can be read now."""
    return outcome_schema(source) | {"correction": "string", "is_new": "boolean"}


def judge_again(read: ReadPart, source: Source, now_us: int, row: Outcome) -> Iterator[Outcome]:
    """The outcome of one open row, or all those of a file; none if refused as before.

    A file that is gone from landing has none either.
    """
    if row["row_number"] == WHOLE_FILE:
        yield from _judge_file(read, row)
        return
    outcome = _judged(source, now_us, row)
    given = {key: row[key] for key in ("quarantine_id", "source_file", "correction", "raw")}
    if not _is_known(outcome | given, row["known"]):
        yield outcome | given | {"is_new": False}


def _judged(source: Source, now_us: int, row: Outcome) -> Outcome:
    if "kafka_message" in row:
        return judged_again(source, row, row["correction"], now_us)
    name, number = row["source_file"], row["row_number"]
    text = row["raw"] if row["correction"] is None else row["correction"]
    try:
        values = row_of_raw(name, text, source)
        event = to_event(source, values, now_us)
        return accepted(source, number, event, Rescue(source).text(values))
    except RefusedError as refusal:
        return refused(name, number, refusal, row["raw"])


def _is_known(outcome: Outcome, known: Mapping[str, Any]) -> bool:
    return all(outcome.get(key) == value for key, value in known.items())


def _judge_file(read: ReadPart, row: Outcome) -> Iterator[Outcome]:
    name = row["source_file"]
    try:
        for outcome in read(name):
            if outcome["kind"] == FILE:
                yield outcome | {"quarantine_id": row["quarantine_id"], "is_new": False}
            elif outcome["row_number"] == WHOLE_FILE:  # unreadable as before
                if not _is_known(outcome, row["known"]):
                    yield outcome | {"is_new": False}
                return
            else:
                key = quarantine_id(name, outcome["row_number"])
                yield outcome | {"quarantine_id": key, "is_new": True}
    except (FileGoneError, OriginError):
        return
