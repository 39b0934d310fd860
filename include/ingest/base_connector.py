"""The interface of connectors, and the base of those whose splits are read and parsed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from include.catalogue import FINDINGS
from include.fold.admission import MICROSECOND, micros_of
from include.ingest.connector import Batch, Done, Lag, Loss, NextSplits, ReadSplit
from include.ingest.ingest_log import BRONZE, QUARANTINE, Entry, Ingestion
from include.ingest.parse_files import Counts, Parse, Parsed
from include.ingest.watermark import SourceWatermark, advance_watermark, as_text
from include.lake.errors import RowCountError
from include.lake.ops import Finding, record_findings
from include.lake.table import Staged
from include.settings import Source
from include.text_table import counted


class SourceConnector(Protocol):
    """The place that a source's rows come from, as first seen; ConnectorError where it cannot be read.

    Its settings (`include.connectors`) have `place`, `uri` and `check_paths`. Its splits have an `origin_id`,
    by which a source is known not to be landed files: without it the next run is refused.
    """

    def take_next(self, ingestion: Ingestion, parse: Parse, run_id: str | None) -> Counts | None:
        """Ingest one batch of what no batch has; None when there is nothing left."""

    def lag(self, done: Done) -> Lag: ...

    def loss(self, done: Done) -> Loss | None:
        """The loss that ingestion has to go on behind; None without one."""

    def reader(self, batch: Batch) -> ReadSplit: ...


class SplitsConnector(SourceConnector, Protocol):
    """Landed files, a topic or others' table: splits that are parsed."""

    def next_splits(self, done: Done) -> NextSplits:
        """The oldest splits that no batch has, as ordered in `Done`; raises ConnectorError where rows are lost."""

    def take_next(self, ingestion: Ingestion, parse: Parse, run_id: str | None) -> Counts | None:
        lake, source, logged = ingestion.lake, ingestion.source, ingestion.logged
        following = self.next_splits(logged.done())
        if not following.splits:
            return None
        at_us = micros_of(datetime.now(UTC)) // 1000 * 1000
        read = [split for split in following.splits if split.name is not None]
        batch = Batch(logged.newest + 1, read, at_us)
        with parse(lake, source, batch, self.reader(batch)) as parsed:
            counts = parsed.counts()
            before, after, files = stage_events(ingestion, batch, parsed, counts)
            if counts.rows_quarantined:
                files[QUARANTINE] = parsed.stage_refused()
            _check_counts(batch, counts, files)
            # Before the commit: a run that dies says it again, and none keeps it for itself.
            found = counts.findings(source)
            found += jump_findings(source, counts.newest, before, after)
            record_findings(lake, run_id, source.name, [*following.ignored, *found])
            ingestion.commit(Entry(before, after, files, following.splits))
        return replace(counts, batches=1)


def stage_events(
    ingestion: Ingestion, batch: Batch, parsed: Parsed, counts: Counts
) -> tuple[SourceWatermark, SourceWatermark, dict[str, Sequence[Staged]]]:
    """Write a batch's events as files; the watermark before and after them, and the files by table."""
    before = ingestion.watermark()
    if not counts.rows_bronze:
        return before, before, {}
    newest_us = max(counts.newest.values())
    after = advance_watermark(before, newest_us, batch.ingested_at_us, counts.groups)
    return before, after, {BRONZE: parsed.stage_accepted(before, after)}


def _check_counts(batch: Batch, counts: Counts, files: Mapping[str, Sequence[Staged]]) -> None:
    """Raise RowCountError when splits were not parsed, or rows that were parsed are not in files."""
    if counts.files_landed != len(batch.splits):
        raise RowCountError(f"{counts.files_landed} of {len(batch.splits)} files were read")
    for table, parsed in ((BRONZE, counts.rows_bronze), (QUARANTINE, counts.rows_quarantined)):
        written = sum(file.rows for file in files.get(table, ()))
        if written != parsed:
            raise RowCountError(f"{counted(parsed, 'row')} for {table}, but {written} were written")


SLACK = timedelta(hours=1)  # between a commit and the newest event in it


def jump_findings(
    source: Source, newest: Mapping[str, int], before: SourceWatermark, after: SourceWatermark
) -> list[Finding]:
    """A warning where one file has moved the watermark further than time has passed since the commit
    before; `newest` has the newest event of each file.

    None for a source with groups: no file of it moves the watermark alone.
    """
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
