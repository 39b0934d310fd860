"""Ingest the open rows of a source's quarantine again, as they are or corrected.

    python -m include.ingest.reingest --source signals --lake lake --corrections mended.jsonl

Each line of the corrections is {"quarantine_id": "...", "raw": "..."}. Every open row is judged by
today's settings. A file that was refused as a whole is read again from landing: mend it there. So is
a file of Parquet or Avro, for its rows that are not corrected.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from include import job
from include.fold.admission import micros_of
from include.ingest.amendments import amendments_of
from include.ingest.bronze_tables import follow_fields, read_quarantine
from include.ingest.formats import has_types, row_of_raw
from include.ingest.ingest_log import QUARANTINE, Entry, Ingestion
from include.ingest.landed_files import landed_files
from include.ingest.landed_values import Rescue
from include.ingest.parse_files import (
    FILE,
    REFUSED,
    WHOLE_FILE,
    Counts,
    ParsedHere,
    in_batches,
    judge_of_rows,
    outcome_schema,
    quarantine_id,
    quarantine_rows_of,
)
from include.ingest.source_connector import connector_of, stage_events
from include.ingest.splits import Batch, ConnectorError, Outcome, Split
from include.lake.columns import instant_scalar
from include.lake.errors import wrong_argument
from include.lake.lease import hold_lease
from include.lake.paths import Lake, open_lake
from include.registry import source_named
from include.settings import Source

Row = Mapping[str, Any]


def reingest(lake: Lake, source: Source, corrections: Mapping[str, str], now: datetime) -> Counts:
    """Judge all open rows again; return what this changes in bronze and in quarantine."""
    amendments_of(lake, source.name).refuse_before_amended("re-ingestion")
    if not lake.is_delta_table(lake.ingest_log(source.name)):
        refuse_corrections(corrections, {})
        return Counts()
    ingestion = Ingestion(lake, source)
    ingestion.finish()
    follow_fields(ingestion.bronze, source)
    return ingestion.again(lambda: _reingest(ingestion, corrections, now))


def _reingest(ingestion: Ingestion, corrections: Mapping[str, str], now: datetime) -> Counts:
    lake, source = ingestion.lake, ingestion.source
    batch = Batch(ingestion.logged.newest + 1, (), micros_of(now))
    # What delta-rs has written by MERGE comes as string_view, which Arrow compares with nothing.
    ids = pc.field("quarantine_id").cast(pa.string())
    corrected = _rows(lake, source, ids.isin(pa.array(corrections, pa.string())))
    refuse_corrections(corrections, {row["quarantine_id"]: row for row in corrected})
    open_rows = _rows(lake, source, pc.field("resolved_at").is_null())
    judge = _Judge(ingestion, batch, corrections)
    schema = outcome_schema(source).append(pa.field("correction", pa.string()))
    outcomes = pa.Table.from_batches(in_batches(judge.changes(open_rows), schema), schema)
    if not outcomes.num_rows:
        return judge.counts
    # Bronze calls their files FILE#QUARANTINE_ID.
    names = pc.binary_join_element_wise(outcomes["source_file"], outcomes["quarantine_id"], "#")
    of_bronze = outcomes.drop_columns("source_file").append_column("source_file", names)
    parsed = ParsedHere(lake, source, batch, of_bronze)
    before, after, files = stage_events(ingestion, batch, parsed, judge.counts)
    # A null of what is resolved leaves what is there.
    is_open, at = pc.equal(outcomes["kind"], REFUSED), instant_scalar(batch.ingested_at_us)
    resolved_at = pc.if_else(is_open, pa.scalar(None, at.type), at)
    changes = outcomes.append_column("resolved_at", resolved_at)
    rows = quarantine_rows_of(source, changes, batch.ingested_at_us)
    files[QUARANTINE] = ingestion.stage_changes(rows)
    ingestion.commit(Entry(before, after, files))
    return replace(judge.counts, batches=int(judge.counts.rows_bronze > 0))


def _rows(lake: Lake, source: Source, wanted: pc.Expression) -> Iterator[Row]:
    for batch in read_quarantine(lake, source.name, wanted):
        yield from batch.to_pylist()


class _Judge:
    """Judges open rows of quarantine again; reads files again that were ingested before."""

    def __init__(self, ingestion: Ingestion, batch: Batch, corrections: Mapping[str, str]) -> None:
        self._ingestion, self._source = ingestion, ingestion.source
        self._corrections, self._now_us = corrections, batch.ingested_at_us
        source, values = self._source, lambda of: row_of_raw(of[0], of[1], self._source)
        self._judge = judge_of_rows(source, Rescue(source), values, raw=lambda of: None)
        self._read = connector_of(ingestion.lake, ingestion.source).reader(batch)
        self.counts = Counts()  # what this changes

    def changes(self, rows: Iterable[Row]) -> Iterator[Outcome]:
        """Yield outcomes of open rows and of files that are there, but of those refused as before."""
        for row, outcome in self._judged(rows):
            if row is not None:
                outcome |= {name: row[name] for name in ("quarantine_id", "source_file", "raw")}
                outcome["correction"] = self._correction(row)
                if all(outcome.get(n) == row[n] for n in ("reason_code", "reason", "correction")):
                    continue
                self.counts.rows_quarantined -= 1
            if outcome["kind"] != FILE:
                self.counts.add_row(self._source, outcome)
            yield outcome

    def _correction(self, row: Row) -> str | None:
        found: str | None = self._corrections.get(row["quarantine_id"], row["correction"])
        return found

    def _judged(self, rows: Iterable[Row]) -> Iterator[tuple[Row | None, Outcome]]:
        """Yield outcomes with the open row that each is of; None for a file that can be read by now."""
        typed: dict[str, dict[int, Row]] = {}
        for row in rows:
            name, number = row["source_file"], row["row_number"]
            if number == WHOLE_FILE:
                yield from self._judged_file(row)
            elif "kafka_message" not in row and self._correction(row) is None and has_types(name):
                typed.setdefault(name, {})[number] = row
            else:
                yield row, self._judged_row(row)
        for name in self._unchanged(typed):
            for outcome in self._outcomes(name):
                if known := typed[name].get(outcome.get("row_number", WHOLE_FILE)):
                    yield known, outcome

    def _judged_row(self, row: Row) -> Outcome:
        correction = self._correction(row)
        if "kafka_message" in row:
            from include.ingest.kafka import judged_again

            return judged_again(self._source, row, correction, self._now_us)
        name, text = row["source_file"], row["raw"] if correction is None else correction
        return self._judge(name, row["row_number"], (name, text), self._now_us)

    def _judged_file(self, row: Row) -> Iterator[tuple[Row | None, Outcome]]:
        name = row["source_file"]
        for outcome in self._outcomes(name):
            number = outcome.get("row_number", WHOLE_FILE)
            if number == WHOLE_FILE:  # itself: it is read, or is unreadable as before
                yield row, outcome
                return
            yield None, outcome | {"quarantine_id": quarantine_id(name, number)}

    def _outcomes(self, name: str) -> Iterator[Outcome]:
        """Yield an outcome for each row of a file, and last one for the file; none where it is gone."""
        with suppress(ConnectorError):
            yield from self._read(self._splits[name])

    @cached_property
    def _splits(self) -> dict[str, Split]:
        return {s.source_file: s for _, s in self._ingestion.logged.done().splits}

    def _unchanged(self, names: Iterable[str]) -> list[str]:
        """The files that are as they were ingested. (A file of others' table never changes.)"""
        landed = set(landed_files(self._ingestion.lake, self._source.name))
        return [n for n in names if self._source.connector is not None or self._splits[n] in landed]


def read_corrections(path: Path) -> dict[str, str]:
    """The corrected texts by quarantine_id; raises SettingsError, with the line, for a wrong one."""
    corrections: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        said = f"the corrections {path} cannot be read: {error}"
        raise wrong_argument(str(path), said) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match _json(line):
            case {"quarantine_id": str(key), "raw": str(raw)} if key not in corrections:
                corrections[key] = raw
            case _:
                said = 'expected, once for each row, {"quarantine_id": "...", "raw": "the row as text"}'
                raise wrong_argument(f"line {number}", f"{path} line {number}: {said}")
    return corrections


def _json(line: str) -> object:
    with suppress(ValueError):
        return json.loads(line)
    return None


def refuse_corrections(corrections: Mapping[str, str], rows: Mapping[str, Any]) -> None:
    """Raise SettingsError when a correction has no open row that it could correct."""
    for key in corrections:
        row = rows.get(key)
        if row is None or row["resolved_at"] is not None or row["row_number"] == WHOLE_FILE:
            said = f"quarantine has no open row {key}, and nothing was ingested (a file is mended in landing)"
            raise wrong_argument(key, said)


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
        record |= reingest(lake, source, corrections, datetime.now(UTC)).of_run()


if __name__ == "__main__":
    job.exit_with_main(main)
