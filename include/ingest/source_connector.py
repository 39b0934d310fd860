"""The interface of connectors, the base of those whose splits are parsed, and the connector of a source.

Also how many rows wait, how to go on behind a loss, and how to ingest a source from scratch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from include.catalogue import FINDINGS
from include.connectors import DeltaTable, KafkaTopic, Merged, StreamTable, refuse_own_table
from include.fold.admission import MICROSECOND, micros_of
from include.ingest.amendments import ERASURE, amendments_of
from include.ingest.ingest_log import BRONZE, QUARANTINE, Entry, Ingestion, read_done
from include.ingest.parse_files import Counts, Parse, Parsed
from include.ingest.splits import Batch, ConnectorError, Done, Lag, Loss, NextSplits, ReadSplit
from include.ingest.watermark import SourceWatermark, advance_watermark, as_text
from include.job import nothing_running
from include.lake.delta_log import is_there, move_aside
from include.lake.errors import OF_SOURCE, LakeError, RowCountError
from include.lake.ops import Finding, record_findings
from include.lake.paths import Lake
from include.lake.table import Staged
from include.registry import inputs_first, streams_of
from include.settings import Source
from include.text_table import counted


class SourceConnector(Protocol):
    """The place that a source's rows come from, as first seen; ConnectorError where it cannot be read.

    Its settings (`include.connectors`) have `place`, `uri` and `check_paths`. Its splits have an `origin_id`,
    by which a source is known not to be landed files: without it the next run is refused.
    """

    source: Source

    def take_next(self, ingestion: Ingestion, parse: Parse, run_id: str | None) -> Counts | None:
        """Ingest one batch of what no batch has; None when there is nothing left."""

    def lag(self, done: Done) -> Lag: ...

    def loss(self, done: Done) -> Loss | None:
        """The loss that ingestion has to go on behind; None without one. ConnectorError where nothing can be lost."""
        said = f"{place_of(self.source)} loses nothing that is to be ingested"
        raise ConnectorError(said, code="wrong_argument", subject=self.source.name)

    def not_again(self) -> str:
        """Say, for people, what of the ingested rows cannot be ingested again."""
        return f"rows that {place_of(self.source)} no longer has do not come again"

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


def connector_of(lake: Lake, source: Source) -> SourceConnector:
    """The connector by the settings of a source: a new kind is added here, and to `include.connectors`."""
    # Imported when needed: the client of a topic takes long to load.
    match source.connector:
        case None:
            from include.ingest.landed_files import LandedFiles

            return LandedFiles(lake, source)
        case KafkaTopic() as topic:
            from include.ingest.kafka import TopicConnector

            return TopicConnector(source, topic)
        case DeltaTable() as table:
            refuse_own_table(source.name, table.uri, lake.root)
            from include.ingest.delta_versions import TableConnector

            return TableConnector(source, table)
        case StreamTable() as parent:
            from include.ingest.stream_table import StreamTableConnector

            return StreamTableConnector(lake, source, parent.stream)
        case Merged():
            from include.ingest.merged import MergedConnector

            return MergedConnector(lake, source)


def place_of(source: Source) -> str:
    """The place, for people, of rows before they are ingested."""
    return f"landing/{source.name}" if source.connector is None else source.connector.place


def waiting(lake: Lake, source: Source) -> int:
    """The number of files, or offsets, that no batch has; 0 when there is nothing to ingest."""
    return connector_of(lake, source).lag(read_done(lake, source.name)).waiting


def lag_of_run(lake: Lake, source: Source, done: Done | None = None) -> Lag:
    """The lag of the next run, of inputs, too; a run that would fail has something to say, too."""
    try:
        lags = [
            connector_of(lake, s).lag(read_done(lake, s.name)) for s in inputs_first(source)[:-1]
        ]
        lags.append(connector_of(lake, source).lag(done or read_done(lake, source.name)))
    except ConnectorError:
        return Lag(1, is_little=True)
    waiting, is_little = sum(lag.waiting for lag in lags), all(lag.is_little for lag in lags)
    return Lag(waiting, is_little, lags[-1].held)


def plan_loss(lake: Lake, source: Source) -> Loss | None:
    """The loss that `accept_loss` would go on behind; None when nothing is lost."""
    return connector_of(lake, source).loss(read_done(lake, source.name))


def accept_loss(lake: Lake, source: Source, loss: Loss) -> None:
    """Go on behind what is lost, by a batch of no rows; the finding `rows_skipped` keeps it."""
    ingestion = Ingestion(lake, source)
    said = f"{loss.what}. `./stateful ingest {source.name} --accept-loss` has gone on behind them"
    found = FINDINGS["rows_skipped"].found(source.name, said, count=loss.lost)
    # First: once it is committed, nothing is lost any more.
    record_findings(lake, None, source.name, [found])
    ingestion.again(lambda: ingestion.commit(Entry(splits=loss.splits)))


# Bronze, quarantine and the ingest log of a source are moved aside together: none is of use alone.
def plan_from_scratch(lake: Lake, source: Source) -> str:
    """The plan for people: what is moved, and what follows; raises LakeError while a key is erased."""
    _refuse_erasing(lake, source.name)
    return "\n".join(_moves(lake, source))


def move_source_aside(lake: Lake, source: Source) -> None:
    """Move its tables aside, or what an interrupted move has left, once no job of it runs."""
    with nothing_running(lake, [source.name], streams_of(source.name)):
        _refuse_erasing(lake, source.name)
        move_aside(lake, [f"{folder}/{source.name}" for folder in OF_SOURCE])


def _refuse_erasing(lake: Lake, source: str) -> None:
    try:
        amendment = amendments_of(lake, source).open
    except LakeError:
        return  # of an ingest log that cannot be read nothing is left to go on with
    if amendment is not None and amendment.kind == ERASURE:
        raise amendment.unfinished("ingestion from scratch")


def _moves(lake: Lake, source: Source) -> Iterator[str]:
    tables = (f"{folder}/{source.name}" for folder in OF_SOURCE)
    named = ", ".join(name for name in tables if is_there(lake, f"{lake.root}/{name}")) or "nothing"
    yield f"moves {named} into set_aside/, and ingests all of {place_of(source)} again"
    yield connector_of(lake, source).not_again()
    yield "rows that were corrected and ingested by reingest have to be so again"
    for stream in streams_of(source.name):
        # By what is there: what is recorded of it may be what is damaged.
        folders = (f"{lake.root}/{kind}/{stream.name}" for kind in ("checkpoints", "tables"))
        if any(is_there(lake, folder) for folder in folders):
            yield f"{stream.name} stops until it is rebuilt: `./stateful rebuild {stream.name} --apply`"
