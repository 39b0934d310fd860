"""Ingestion: what has landed for a source goes into bronze, what is no event into quarantine, with findings.

One way for all: who parses the files differs, and with it who writes the rows. Little is parsed
and written here, without a JVM (`parsed_here`); much by a job of Spark (spark_jobs/ingest_source.py).
Repeating a batch after a crash changes nothing, whoever repeats it: both tables remember the
batches they have, and a batch that is repeated keeps its files and the time by which it judges them.
A run of a source with a clock ends with a clock row, where one is due (clock.py).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import NamedTuple

from include.fold.admission import MICROSECOND
from include.job import RunRecord
from include.lake.commits import rows_committed
from include.lake.errors import StatefulError
from include.lake.findings import Finding, record_findings
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError
from include.landing.batch import Batch
from include.landing.bronze_tables import create_tables, follow_fields
from include.landing.clock import Clock, as_text, check_clock_order
from include.landing.clock_repair import refuse_before_reset
from include.landing.clock_row import write_clock_row
from include.landing.delta_versions import ignored_findings
from include.landing.group_report import report_groups
from include.landing.ingest_position import (
    app_id,
    ensure_position,
    finish,
    is_batch_in,
    next_batch,
    refuse_other_origin,
)
from include.landing.ingest_seal import refuse_changed_tables, seal_anew, seal_tables
from include.landing.landed_values import shown
from include.landing.origin import arrivals_of, place_of
from include.landing.parsed_batch import Once, Parse, Parsed, Summary, parsed_here
from include.landing.planned_entry import entry_hash, planned_entry
from include.landing.quarantined_rows import quarantine_findings, rows_kept
from include.origins import KafkaTopic
from include.settings import Source
from include.text_table import counted

FINDING = "unknown_field"
NAMED = 20  # of one run; a file can have any number


def new_fields(lake: Lake, source: Source, unknown: Mapping[str, int]) -> list[Finding]:
    """A finding for each field of `unknown` (name to rows) that none has been made for."""
    if not unknown:
        return []
    rows = read_ops(lake, "findings", {"finding": FINDING, "subject": source.name})
    told = set(rows["detail"].to_pylist())
    details = {
        name: f"{shown(name)} landed for {source.name}, which has no such field: it is kept in the "
        f"column rescued of bronze/{source.name}"
        for name in sorted(unknown)
    }
    return [
        Finding(
            finding=FINDING,
            severity="info",
            count=unknown[name],
            detail=detail,
            action=f"declare it as a field of {source.name}, with required=False, and streams read it "
            "of these rows, too; or pass it over with ignored=",
        )
        for name, detail in [each for each in details.items() if each[1] not in told][:NAMED]
    ]


# Between a commit and the newest event in it.
SLACK = timedelta(hours=1)


class Jump(NamedTuple):
    """By what the watermark went beyond all other rows known, and with which file."""

    by_us: int
    passed_us: int  # since the commit before
    watermark_us: int
    file: str


# The file with a batch's newest event, and the newest time in any other one; None without another.
NewestFile = Callable[[], tuple[str, int | None]]


def find_jump(newest_file: NewestFile, source: Source, before: Clock, after: Clock) -> Jump | None:
    """None when M rose by no more than the time since the commit before, and some slack.

    Nor is it one when a second file of the commit is about as new, or the source has groups: then
    the newest event has not moved M (group_report.py).
    """
    if source.watermark_per is not None:
        return None
    marks = (before.watermark_us, after.watermark_us, before.ingested_at_us, after.ingested_at_us)
    if any(mark is None for mark in marks):
        return None
    from_us, to_us, last_us, now_us = (mark or 0 for mark in marks)
    passed_us = now_us - last_us
    most_us = passed_us + (source.max_future + SLACK) // MICROSECOND
    if to_us - from_us <= most_us:
        return None
    file, others_us = newest_file()
    by_us = to_us - max(from_us, others_us or from_us)
    return Jump(by_us, passed_us, to_us, file) if by_us > most_us else None


def jump_findings(source: Source, jumps: Sequence[Jump]) -> list[Finding]:
    """One warning for a run: of its furthest jump."""
    if not jumps:
        return []
    jump = max(jumps)
    return [
        Finding(
            finding="watermark_jumped",
            severity="warning",
            count=len(jumps),
            detail=f"{jump.file} moved the watermark of bronze/{source.name} "
            f"{_span(jump.by_us)} beyond all other rows, to {as_text(jump.watermark_us)}, "
            f"{_span(jump.passed_us)} after the commit before: what lands with older times than "
            "that, and a stream's watermark_delay, is late",
            action="if a clock is wrong, set it right, and then this source's by `./stateful repair-clock "
            f"{source.name} --to TO`, which shows what it would do; if this was a load of "
            "history, nothing",
        )
    ]


def _span(micros: int) -> str:
    return str(timedelta(seconds=micros // 1_000_000))


class RowsLostError(StatefulError):
    """Landed rows are neither in bronze nor in quarantine, or they are there twice."""

    code = "rows_do_not_add_up"
    exit_code = 1


@dataclass(frozen=True)
class RunCounts:
    """What one run committed; the names are columns of ops/runs."""

    batches: int = 0
    files_landed: int = 0
    rows_landed: int = 0
    rows_bronze: int = 0
    rows_quarantined: int = 0
    rows_rescued: int = 0

    def __add__(self, other: "RunCounts") -> "RunCounts":
        theirs = asdict(other)
        return RunCounts(**{name: count + theirs[name] for name, count in asdict(self).items()})


class BatchWriter:
    """Writes each batch to bronze and to quarantine, once; what this run has done."""

    def __init__(self, lake: Lake, source: Source, parse: Parse, run_id: str | None = None) -> None:
        self.run_id = run_id
        self._lake = lake
        self._source = source
        self._parse = parse
        self.counts = RunCounts()
        self.jumps: list[Jump] = []  # of the watermark, by this run's commits
        self.skipped = 0  # messages that are passed over by declaration
        self.unknown: Counter[str] = Counter()  # of each that is no field, its rows

    def write(self, batch: Batch, sizes: Mapping[str, int]) -> None:
        """Parse the batch, commit it to both tables, and say that it is done."""
        with self._parse(self._lake, self._source, batch, sizes) as parsed:
            summary = checked_summary(parsed.summary(), len(batch.files))
            if summary.accepted and not is_batch_in(self._lake, self._source.name, "bronze", batch):
                self._append_accepted(parsed, batch)
            # Before quarantine has it: what it has then is all that the batch is to have.
            accepted = self._rows_of("bronze", batch, summary.accepted)
            found = self._append_refused(parsed, batch, summary)
        refused = self._rows_of("quarantine", batch, summary.refused)
        # Before the batch is done: who dies before says it again, and no position is ahead of a seal.
        record_findings(self._lake, self.run_id, self._source.name, found)
        seal_tables(self._lake, self._source.name)
        finish(self._lake, self._source.name, batch, accepted, refused)
        self.unknown.update(summary.unknown)
        rows = (accepted + refused, accepted, refused, summary.rescued)
        self.counts += RunCounts(1, summary.files, *rows)
        self.skipped += summary.skipped

    def _append_accepted(self, parsed: Parsed, batch: Batch) -> None:
        clocks = parsed.append_accepted(self._once("bronze", batch))
        if clocks is None:
            return
        check_clock_order(self._lake, self._source, *clocks)
        if jump := find_jump(parsed.newest_file, self._source, *clocks):
            self.jumps.append(jump)

    def _append_refused(self, parsed: Parsed, batch: Batch, summary: Summary) -> list[Finding]:
        """What there is to say of them."""
        if not summary.refused:
            return []
        parsed.append_refused(self._once("quarantine", batch), batch.ingested_at_us)
        landed = summary.accepted + summary.refused
        return quarantine_findings(self._source, landed, parsed.refusals())

    def _once(self, table: str, batch: Batch) -> Once:
        return Once(app_id(self._source.name, table, batch.position_id), batch.number)

    def _rows_of(self, table: str, batch: Batch, judged: int) -> int:
        """The batch's rows in that table, from now or before, by the table's own log.

        RowsLostError when they are not those of the batch.
        """
        path = f"{self._lake.root}/{table}/{self._source.name}"
        written = rows_committed(self._lake, path, *self._once(table, batch))
        if written is None:
            return judged
        # A run that died had read messages that were compacted away, or files that were given up.
        is_less_now = isinstance(self._source.origin, KafkaTopic) and written > judged
        if is_less_now or written == judged + rows_kept(self._lake, self._source, table, batch):
            return written
        raise RowsLostError(
            f"batch {batch.number} of {self._source.name} has {counted(judged, 'row')} for {path}, but its "
            f"commit there has {written}. If an earlier run began the batch, and one of its "
            "files or the source's entry was changed since, put that back as it was and "
            f"run again; else keep the lake as it is and compare the table with {place_of(self._source)}"
            f"{'' if self._source.origin else '; or give up what a file has now'}",
            subject=self._source.name,
            command=self._skip(batch),
        )

    def _skip(self, batch: Batch) -> str | None:
        if self._source.origin is not None:
            return None
        name = quote(batch.files[0]) if len(batch.files) == 1 else "FILE"
        return f"./stateful skip-file {self._source.name} {name}"


def refuse_other_entry(lake: Lake, source: Source, batch: Batch) -> None:
    """LakeError when one of the tables has the batch, as another entry of the source has judged it."""
    name = source.name
    plan = app_id(name, "plan", batch.position_id)
    planned = planned_entry(lake, lake.ingested_files(name), plan, batch.number)
    if planned in (None, entry_hash(source)):
        return
    for table, path in (("bronze", lake.bronze(name)), ("quarantine", lake.quarantine(name))):
        if is_batch_in(lake, name, table, batch):
            raise LakeError(
                f"batch {batch.number} of {name} was begun under another entry of the source, and "
                f"{path} has it already: rows that today's entry judges otherwise would be lost, or "
                "there twice. Put the entry back as it was, ingest, and change it then",
                code="settings_changed",
                subject=name,
            )


def checked_summary(summary: Summary, files_planned: int) -> Summary:
    """The summary; RowsLostError when it does not add up to the batch's files and their rows."""
    judged = summary.accepted + summary.refused
    if summary.files != files_planned or summary.rows_in_files != judged:
        raise RowsLostError(
            f"{summary.files} of {files_planned} files were read; {summary.rows_in_files} rows "
            f"landed in them, but {summary.accepted} were accepted and {summary.refused} refused"
        )
    return summary


def ingest(
    lake: Lake,
    source: Source,
    record: RunRecord | None = None,
    interval_end: datetime | None = None,
    parse: Parse = parsed_here,
) -> RunCounts:
    """Drain landing, and write a clock row where one is due (`interval_end`: of the Dag run).

    A `record` gets the counts, too, and also when it fails half-way.
    """
    run_id = (record or {}).get("run_id")
    prepare(lake, source)
    writer = BatchWriter(lake, source, parse, run_id)
    try:
        drain(lake, source, writer)
    finally:
        if record is not None:
            record |= asdict(writer.counts)
        found = [*jump_findings(source, writer.jumps), *skip_findings(source, writer.skipped)]
        found += new_fields(lake, source, writer.unknown)
        record_findings(lake, run_id, source.name, found)
    bounded = write_clock_row(lake, source, interval_end, datetime.now(UTC))
    record_findings(
        lake, run_id, source.name, [*bounded, *report_groups(lake, source, datetime.now(UTC))]
    )
    seal_tables(lake, source.name)
    return writer.counts


def prepare(lake: Lake, source: Source) -> None:
    """Make what a fresh lake lacks. LakeError where tables and position do not fit each other."""
    refuse_before_reset(lake, source.name, "ingestion")
    begins_anew = refuse_changed_tables(lake, source) is None
    refuse_other_origin(lake, source)
    create_tables(lake, source)
    follow_fields(lake, source)
    if source.origin is None:  # a fresh lake has no landing: nothing landed
        landing = lake.path_in_filesystem(lake.landing(source.name))
        lake.filesystem.create_dir(landing, recursive=True)
    ensure_position(lake, source)
    if begins_anew:
        seal_anew(lake, source.name)


def drain(lake: Lake, source: Source, writer: BatchWriter) -> None:
    """All that is there now, batch by batch. What comes meanwhile waits for the next run."""
    arrived = arrivals_of(lake, source)
    while batch := next_batch(lake, source, arrived, datetime.now(UTC)):
        refuse_other_entry(lake, source, batch)
        # Before it is taken: a run that dies says it again, and none keeps it for itself.
        record_findings(lake, writer.run_id, source.name, ignored_findings(source, batch))
        writer.write(batch, arrived.sizes(batch.files))


def skip_findings(source: Source, count: int) -> list[Finding]:
    """Of messages that were passed over, as the source says."""
    if not count:
        return []
    detail = f"passed over: {counted(count, 'message')} without a value of {place_of(source)}"
    return [Finding(finding="tombstones_skipped", severity="info", count=count, detail=detail)]
