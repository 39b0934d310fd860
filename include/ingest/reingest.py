"""Take the open rows of a source's quarantine in again, as they are or corrected.

    python -m include.ingest.reingest --source signals --lake lake --corrections mended.jsonl

Each line of the corrections is {"quarantine_id": "...", "raw": "..."}. Every open row is
judged by today's rules; what is accepted goes to bronze, and the rest stays open with its
reason of today. A file that was refused as a whole is read again from landing: mend it there.
So is one of Parquet or Avro, as it was, for its rows that are not corrected.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include import job
from include.fold.admission import micros_of
from include.ingest.amendments import amendments_of
from include.ingest.bronze_tables import follow_fields
from include.ingest.connector import Batch, OriginError, Outcome, Split, written_at
from include.ingest.ingest import RunCounts, stage_events
from include.ingest.ingest_log import QUARANTINE, Entry, Ingestion
from include.ingest.kafka_rows import judged_again
from include.ingest.landed_file import FileGoneError, has_types, landed_files, row_of_raw
from include.ingest.landed_values import RefusedError, to_event
from include.ingest.origin import connector_of
from include.ingest.parse_files import (
    ACCEPTED,
    FILE,
    REFUSED,
    WHOLE_FILE,
    ParsedHere,
    Summary,
    Tally,
    accepted,
    arrow_schema,
    in_batches,
    outcome_schema,
    quarantine_id,
    quarantine_rows_of,
    refused,
    value_columns,
)
from include.ingest.rescue import Rescue
from include.lake.columns import instant_scalar
from include.lake.errors import wrong_argument
from include.lake.lease import hold_lease
from include.lake.paths import Lake, files_of, open_lake
from include.registry import source_named
from include.settings import Source

Row = Mapping[str, Any]


def reingest(
    lake: Lake, source: Source, corrections: Mapping[str, str], now: datetime
) -> RunCounts:
    """Judge all open rows; the counts are what this changes in bronze and in quarantine.

    Of a file that is readable now, its rows have landed and the file itself no longer has.
    """
    amendments_of(lake, source.name).refuse_before_amended("re-ingestion")
    if not lake.is_delta_table(lake.ingest_log(source.name)):
        refuse_corrections(corrections, {})
        return RunCounts()
    ingestion = Ingestion.open(lake, source)
    ingestion.finish()
    follow_fields(ingestion.bronze, source)
    return ingestion.again(lambda: _taken(ingestion, corrections, now))


def _taken(ingestion: Ingestion, corrections: Mapping[str, str], now: datetime) -> RunCounts:
    lake, source = ingestion.lake, ingestion.source
    batch = Batch(ingestion.logged.newest + 1, (), micros_of(now))
    outcomes, summary = _outcomes(ingestion, corrections, batch)
    counts = _counts(outcomes)
    if not outcomes.num_rows:
        return counts
    parsed = ParsedHere(lake, source, batch, _as_bronze_names(outcomes))
    before, after, files = stage_events(ingestion, batch, parsed, summary)
    files[QUARANTINE] = ingestion.stage_changes(_changes(source, outcomes, now))
    ingestion.take(Entry(before, after, files))
    return counts


def _outcomes(
    ingestion: Ingestion, corrections: Mapping[str, str], batch: Batch
) -> tuple[pa.Table, Summary]:
    """What changes: outcomes of open rows, and of each row of the files that can be read now; and
    what those that are events come to."""
    table = ingestion.quarantine
    quarantine = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path))
    # What delta-rs has written by MERGE comes as string_view, which Arrow compares with nothing.
    ids = pc.field("quarantine_id").cast(pa.string())
    corrected = quarantine.to_table(filter=ids.isin(pa.array(corrections, pa.string())))
    refuse_corrections(corrections, {row["quarantine_id"]: row for row in corrected.to_pylist()})
    rows = chain.from_iterable(
        part.to_pylist() for part in quarantine.to_batches(filter=pc.field("resolved_at").is_null())
    )
    reader = _Reader(ingestion, batch)
    known = (_with_correction(row, corrections) for row in rows)
    tallies: dict[str, Tally] = {}

    def tallied() -> Iterator[Outcome]:
        for outcome in judge_again(reader, ingestion.source, batch.ingested_at_us, known):
            if outcome["kind"] == ACCEPTED:
                name = outcome["source_file"]
                tallies.setdefault(name, Tally(ingestion.source, name)).add(outcome)
            yield outcome

    schema, summary = arrow_schema(outcomes_again(ingestion.source)), Summary()
    outcomes = pa.Table.from_batches(in_batches(tallied(), schema), schema)
    for name, tally in tallies.items():
        summary.add(name, tally.outcome()["tally"])
    return outcomes, summary


class _Reader:
    """Reads files again that were taken before, by the name that quarantine has for them."""

    def __init__(self, ingestion: Ingestion, batch: Batch) -> None:
        self._ingestion = ingestion
        self._read = connector_of(ingestion.lake, ingestion.source).reader(batch)

    @cached_property
    def _taken(self) -> dict[str, Split]:
        return {s.source_file: s for _, s in self._ingestion.logged.done().splits}

    @cached_property
    def _landed(self) -> set[tuple[object, ...]]:
        files = landed_files(self._ingestion.lake, self._ingestion.source.name)
        return {(f.name, f.bytes, written_at(f.modified_ns // 1000)) for f in files}

    def outcomes(self, name: str) -> Iterator[Outcome]:
        """All of its rows, and last itself; none where it is gone."""
        with suppress(FileGoneError, OriginError):
            yield from self._read(self._taken[name])

    def is_as_taken(self, name: str) -> bool:
        """Whether it has the rows that it had. (A file of others' table never changes.)"""
        split = self._taken[name]
        is_landed = self._ingestion.source.origin is None
        return not is_landed or (name, split.bytes, split.modified_at) in self._landed


def _with_correction(row: Row, corrections: Mapping[str, str]) -> Outcome:
    known = {name: row[name] for name in ("reason_code", "reason", "correction")}
    correction = corrections.get(row["quarantine_id"], row["correction"])
    return {**row, "known": known, "correction": correction}


def _counts(outcomes: pa.Table) -> RunCounts:
    """What changes."""
    columns = (outcomes[name].to_pylist() for name in ("kind", "is_new"))
    of = Counter(zip(*columns, strict=True))
    taken = of[ACCEPTED, True] + of[ACCEPTED, False]
    quarantined = of[REFUSED, True] - of[ACCEPTED, False] - of[FILE, False]
    return RunCounts(
        batches=int(taken > 0),
        rows_landed=taken + quarantined,
        rows_bronze=taken,
        rows_quarantined=quarantined,
    )


def _as_bronze_names(outcomes: pa.Table) -> pa.Table:
    """With the `source_file` that bronze gives to reingested rows: FILE#QUARANTINE_ID."""
    names = pc.binary_join_element_wise(outcomes["source_file"], outcomes["quarantine_id"], "#")
    return outcomes.set_column(outcomes.schema.get_field_index("source_file"), "source_file", names)


def _changes(source: Source, outcomes: pa.Table, now: datetime) -> pa.Table:
    """The rows of quarantine as they are to be: a null of what is resolved leaves what is there."""
    is_open, at = pc.equal(outcomes["kind"], REFUSED), instant_scalar(micros_of(now))
    resolved_at = pc.if_else(is_open, pa.scalar(None, at.type), at)
    return quarantine_rows_of(
        source, outcomes.append_column("resolved_at", resolved_at), micros_of(now)
    )


def outcomes_again(source: Source) -> dict[str, str]:
    """The columns of an outcome; `is_new` marks the rows of a file that can be read now."""
    return outcome_schema(source) | {"correction": "string", "is_new": "boolean"}


def judge_again(
    reader: _Reader, source: Source, now_us: int, rows: Iterable[Outcome]
) -> Iterator[Outcome]:
    """The outcomes of open rows, and all those of a file; none of what is refused as before.

    A file that is gone from landing has none either.
    """
    typed: dict[str, dict[int, Outcome]] = {}
    for row in rows:
        name, number = row["source_file"], row["row_number"]
        if number == WHOLE_FILE:
            yield from _judge_file(reader, row)
        elif "kafka_message" not in row and row["correction"] is None and has_types(name):
            typed.setdefault(name, {})[number] = row
        else:
            yield from _changed(row, _judged(source, now_us, row))
    for name, of_file in typed.items():
        if reader.is_as_taken(name):
            for outcome in reader.outcomes(name):
                if (known := of_file.get(outcome.get("row_number", WHOLE_FILE))) is not None:
                    yield from _changed(known, outcome)


def _changed(row: Outcome, outcome: Outcome) -> Iterator[Outcome]:
    """The outcome of an open row; none when it is refused as before."""
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
        return accepted(value_columns(source), number, event, Rescue(source).text(values))
    except RefusedError as refusal:
        return refused(name, number, refusal, row["raw"])


def _is_known(outcome: Outcome, known: Mapping[str, Any]) -> bool:
    return all(outcome.get(key) == value for key, value in known.items())


def _judge_file(reader: _Reader, row: Outcome) -> Iterator[Outcome]:
    name = row["source_file"]
    for outcome in reader.outcomes(name):
        if outcome["kind"] == FILE:
            yield outcome | {"quarantine_id": row["quarantine_id"], "is_new": False}
        elif outcome["row_number"] == WHOLE_FILE:  # unreadable as before
            if not _is_known(outcome, row["known"]):
                yield outcome | {"is_new": False}
            return
        else:
            key = quarantine_id(name, outcome["row_number"])
            yield outcome | {"quarantine_id": key, "is_new": True}


def read_corrections(path: Path) -> dict[str, str]:
    """The corrected texts by quarantine_id; SettingsError names the line that is wrong."""
    corrections: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise wrong_argument(
            str(path), f"the corrections {path} cannot be read: {error}"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            correction = json.loads(line)
            key, raw = correction["quarantine_id"], correction["raw"]
        except (ValueError, LookupError, TypeError):
            key = raw = None
        if not isinstance(key, str) or not isinstance(raw, str) or key in corrections:
            raise wrong_argument(
                f"line {number}",
                f"{path} line {number}: expected, once for each row, "
                '{"quarantine_id": "...", "raw": "the row as text"}',
            )
        corrections[key] = raw
    return corrections


def refuse_corrections(corrections: Mapping[str, str], rows: Mapping[str, Any]) -> None:
    """SettingsError when a correction has no open row that it could correct."""
    for key in corrections:
        row = rows.get(key)
        if row is None or row["resolved_at"] is not None or row["row_number"] == WHOLE_FILE:
            raise wrong_argument(
                key,
                f"quarantine has no open row {key}, and nothing was taken in. (A file that was refused as a "
                "whole is mended in landing, under its name.)",
            )


def main() -> None:
    parser = job.job_parser(__doc__, "source")
    parser.add_argument("--corrections", type=Path, help="a file of corrected rows, see above")
    arguments = parser.parse_args()
    source = source_named(arguments.source)
    lake = open_lake(arguments.lake)
    corrections = read_corrections(arguments.corrections) if arguments.corrections else {}
    with (
        hold_lease(lake, f"ingest-{source.name}"),
        job.recorded_run(lake, "reingest_quarantine", source.name, arguments.dag_run_id) as record,
    ):
        record |= asdict(reingest(lake, source, corrections, datetime.now(UTC)))


if __name__ == "__main__":
    job.exit_with_main(main)
