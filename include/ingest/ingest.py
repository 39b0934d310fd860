"""Ingestion: what has landed for a source goes into bronze, what is no event into quarantine.

    python -m include.ingest.ingest --source signals --lake lake

Little is parsed and written here, without a JVM (`parsed_here`); much by a job of Spark
(spark_jobs/ingest_source.py). The ingest log decides what is taken (ingest_log.py).
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from include import job
from include.catalogue import FINDINGS
from include.fold.admission import MICROSECOND, micros_of, parse_instant
from include.ingest.amendments import amendments_in
from include.ingest.bronze_tables import follow_fields
from include.ingest.connector import Batch, Connector
from include.ingest.ingest_log import (
    BRONZE,
    QUARANTINE,
    Entry,
    Ingestion,
    SourceWatermark,
    refuse_other_connector,
)
from include.ingest.landed_values import shown
from include.ingest.parse_files import Counts, Parse, Parsed, parsed_here, quarantine_findings
from include.ingest.source_connector import connector_of, place_of
from include.ingest.watermark import advance_watermark, as_text, read_watermark, write_heartbeat
from include.job import RunRecord
from include.lake.errors import RowCountError
from include.lake.lease import hold_lease
from include.lake.ops import Finding, read_ops, record_findings
from include.lake.paths import Lake, open_lake
from include.lake.table import Staged
from include.registry import source_named
from include.settings import RESCUED, Source
from include.text_table import counted

NAMED = 20  # of one run; a file can have any number


def new_fields(lake: Lake, source: Source, unknown: Mapping[str, int]) -> list[Finding]:
    """A finding for each field of `unknown` (name to rows) that none has been made for."""
    if not unknown:
        return []
    rows = read_ops(lake, "findings", {"finding": "unknown_field", "subject": source.name})
    told = set(rows["detail"].to_pylist())
    retained = f"landed for {source.name}, which has no such field: bronze keeps it in {RESCUED}"
    details = {f"{shown(name)} {retained}": count for name, count in sorted(unknown.items())}
    new = [detail for detail in details if detail not in told][:NAMED]
    found = FINDINGS["unknown_field"].found
    return [found(source.name, detail, count=details[detail]) for detail in new]


# Between a commit and the newest event in it.
SLACK = timedelta(hours=1)


def jump_findings(
    source: Source, newest: Mapping[str, int], before: SourceWatermark, after: SourceWatermark
) -> list[Finding]:
    """A warning where one file, of those with these newest events, has moved M further than time has
    passed since the commit before. Not of groups: no one of them moves M alone."""
    if source.watermark_per is not None or before.watermark_us is None or after == before:
        return []
    passed_us = (after.ingested_at_us or 0) - (before.ingested_at_us or 0)
    file, *others = sorted(newest, key=lambda name: -newest[name])
    to_us = after.watermark_us or 0
    by_us = to_us - max([before.watermark_us, *(newest[name] for name in others[:1])])
    if by_us <= passed_us + (source.max_future + SLACK) // MICROSECOND:
        return []
    by, passed = (timedelta(seconds=us // 1_000_000) for us in (by_us, passed_us))
    said = (
        f"{file} moved the watermark of bronze/{source.name} {by} beyond all other rows, to "
        f"{as_text(to_us)}, {passed} after the commit before"
    )
    return [FINDINGS["watermark_jumped"].found(source.name, said)]


def ingest_next(
    ingestion: Ingestion, connector: Connector, parse: Parse, run_id: str | None
) -> Counts | None:
    """Take the first of it that no batch has; None when there is nothing more."""
    lake, source, logged = ingestion.lake, ingestion.source, ingestion.logged
    cut = connector.next_splits(logged.done())
    if not cut.splits:
        return None
    at_us = micros_of(datetime.now(UTC)) // 1000 * 1000
    read = [split for split in cut.splits if split.name is not None]
    batch = Batch(logged.newest + 1, read, at_us)
    with parse(lake, source, batch, connector.reader(batch)) as parsed:
        counts = parsed.counts()
        if counts.files_landed != len(read):
            raise RowCountError(f"{counts.files_landed} of {len(read)} files were read")
        before, after, files = stage_events(ingestion, batch, parsed, counts)
        if counts.rows_quarantined:
            files[QUARANTINE] = parsed.stage_refused()
        _check_staged(files, counts)
        # Before it is taken: a run that dies says it again, and none keeps it for itself.
        found = quarantine_findings(source, counts) if counts.refused else []
        found += jump_findings(source, counts.newest, before, after)
        record_findings(lake, run_id, source.name, [*cut.passed_over, *found])
        ingestion.commit(Entry(before, after, files, cut.splits))
    return replace(counts, batches=1)


def stage_events(
    ingestion: Ingestion, batch: Batch, parsed: Parsed, counts: Counts
) -> tuple[SourceWatermark, SourceWatermark, dict[str, Sequence[Staged]]]:
    """Write a batch's events as files; the clock before and after them, and the files by table."""
    before = read_watermark(ingestion)
    if not counts.rows_bronze:
        return before, before, {}
    newest_us = max(counts.newest.values())
    after = advance_watermark(before, newest_us, batch.ingested_at_us, counts.groups)
    return before, after, {BRONZE: parsed.stage_accepted(before, after)}


def _check_staged(files: Mapping[str, Sequence[Staged]], counts: Counts) -> None:
    """RowCountError when the files do not have the rows that were parsed."""
    for table, judged in ((BRONZE, counts.rows_bronze), (QUARANTINE, counts.rows_quarantined)):
        written = sum(file.rows for file in files.get(table, ()))
        if written != judged:
            raise RowCountError(f"{counted(judged, 'row')} for {table}, but {written} were written")


def ingest(
    lake: Lake,
    source: Source,
    record: RunRecord | None = None,
    interval_end: datetime | None = None,
    parse: Parse = parsed_here,
) -> Counts:
    """Drain landing, write a heartbeat where one is due; a `record` gets the counts of any run."""
    run_id = (record or {}).get("run_id")
    ingestion = prepare(lake, source)
    counts, found = Counts(), list[Finding]()
    try:
        ingestion.finish()  # what an earlier run has logged, and the tables lack
        follow_fields(ingestion.bronze, source)
        connector = connector_of(lake, source)
        # What comes meanwhile waits for the next run.
        while taken := ingestion.again(lambda: ingest_next(ingestion, connector, parse, run_id)):
            counts += taken
        found = write_heartbeat(ingestion, interval_end, datetime.now(UTC))
        if (groups := read_watermark(ingestion).groups) is not None:
            found += groups.held_back()
    finally:
        if record is not None:
            record |= counts.of_run()
        if counts.skipped:
            skipped_of = f"{counted(counts.skipped, 'message')} without a value"
            said = f"passed over: {skipped_of} of {place_of(source)}"
            skipped = FINDINGS["tombstones_skipped"]
            found.append(skipped.found(source.name, said, count=counts.skipped))
        found += new_fields(lake, source, counts.unknown)
        record_findings(lake, run_id, source.name, found)
    return counts


def prepare(lake: Lake, source: Source) -> Ingestion:
    """The log and tables of a source, which a fresh lake lacks; LakeError where they do not fit."""
    ingestion = Ingestion(lake, source)
    amendments_in(ingestion.logged, source.name).refuse_before_amended("ingestion")
    refuse_other_connector(source, ingestion.logged.done())
    if source.connector is None:  # a fresh lake has no landing: nothing landed
        landing = lake.path_in_filesystem(lake.landing(source.name))
        lake.filesystem.create_dir(landing, recursive=True)
    return ingestion


# A compaction of a stream's state holds the lease for half a minute or so.
COMPACTION_PATIENCE = timedelta(minutes=2)


def run(parse_on: Callable[[Lake], Parse]) -> None:
    """One run of ingestion, as the command line says; `parse_on` gives who parses."""
    arguments = parse_args()
    source = source_named(arguments.source)
    end = arguments.interval_end
    interval_end = parse_instant("--interval-end", end) if end else None
    lake = open_lake(arguments.lake)
    with (
        hold_lease(lake, f"ingest-{source.name}", COMPACTION_PATIENCE),
        job.recorded_run(lake, "ingest_source", source.name, arguments.dag_run_id) as record,
    ):
        ingest(lake, source, record, interval_end, parse_on(lake))


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = job.job_parser(__doc__, "source")
    parser.add_argument(
        "--interval-end",
        metavar="INSTANT",
        help="where the Dag run's data interval ends; empty or left out: now",
    )
    return parser.parse_args(arguments)


def main() -> None:
    run(lambda lake: parsed_here)


if __name__ == "__main__":
    job.exit_with_main(main)
