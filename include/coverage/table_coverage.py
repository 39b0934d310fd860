"""The coverage of a stream's table: read, compared with the table's log, judged. Writes nothing."""

from dataclasses import dataclass, replace

from include.coverage.findings import (
    coverage_findings,
    distrusted,
    instant_text,
    spans_text,
    unfinished_erasure,
)
from include.coverage.judge import Coverage, Span, Standpoint, judge
from include.coverage.record import BEGINNING_US
from include.coverage.verify import Look, distrust_error, look, was_cut_off
from include.fold.admission import micros_of
from include.lake.delta_log import open_table
from include.lake.findings import Finding
from include.lake.generations import GenerationRow, read_generations
from include.lake.paths import Lake
from include.landing.clock_repair import unknown_reset_us
from include.landing.erasures import open_erasure, why_wait
from include.landing.ingest_log import bronze_finding, how_bronze_changed
from include.savepoints.manifest import StreamIdentity, has_mapped
from include.settings import Stream

IN_PROCESSING_TIME = "ProcessingTimeTimeout"


@dataclass(frozen=True)
class TableCoverage:
    """A judged table, and why it is not what was recorded of it (None: it is)."""

    coverage: Coverage
    distrust: str | None
    bronze_changed: str | None = None  # how others have changed what it is made of
    unfinished: str | None = None  # an erasure of a key that it may have

    @property
    def doubt(self) -> str | None:
        """Why nothing that is judged of it counts; None when it does."""
        return self.distrust or self.bronze_changed or self.unfinished

    @property
    def is_right(self) -> bool:
        """Whether it has every row that it is to have until now, and no other.

        Of nothing that is complete nothing is right.
        """
        is_complete = self.coverage.until_us is not None
        return self.doubt is None and is_complete and not self.coverage.wrong


def table_coverage(
    lake: Lake, stream: Stream, identity: StreamIdentity | None = None
) -> TableCoverage:
    """Whether the table of `stream` is right, and since when not.

    By the code of `identity`; without it, by the code that ran last.
    """
    generations = read_generations(lake, stream.name)
    row = generations.current
    judged = judged_table(lake, stream, row, seen=look(lake, generations), identity=identity)
    return replace(
        judged,
        bronze_changed=how_bronze_changed(lake, stream.source),
        unfinished=why_wait(open_erasure(lake, stream.source), stream.name, row),
    )


def judged_table(
    lake: Lake,
    stream: Stream,
    row: GenerationRow | None,
    seen: Look,
    identity: StreamIdentity | None,
) -> TableCoverage:
    """The same, for who has looked already; `row` is of the current generation."""
    standpoint = (
        _as_recorded(lake, stream, row) if identity is None else _as_now(lake, identity, row)
    )
    coverage = judge(lake, seen.entries, standpoint)
    if row is not None and row["output_mode"] == "update" and was_cut_off(lake, row, seen.record):
        coverage = _ahead(coverage)
    return TableCoverage(coverage, seen.distrust)


def rejected_coverage(
    lake: Lake, row: GenerationRow | None, seen: Look, identity: StreamIdentity
) -> Coverage:
    """The same of its rejected rows: they are of the fold that the record names, each at its own
    instant, also where the table shows one state."""
    standpoint = replace(_as_now(lake, identity, row), is_append=True)
    return judge(lake, seen.entries, standpoint)


def _ahead(coverage: Coverage) -> Coverage:
    """Of an update table that shows some keys as of a later instant than the others."""
    if coverage.until_us is None:
        return coverage
    span = Span(BEGINNING_US, coverage.until_us, "cut off")
    return replace(coverage, spans=coverage.wrong or (span,))


def trusted_coverage(lake: Lake, stream: Stream, identity: StreamIdentity) -> Coverage:
    """The same, for a plan that builds on the table; CoverageError when it is another."""
    judged = table_coverage(lake, stream, identity)
    if judged.distrust is not None:
        raise distrust_error(lake, stream.name, judged.distrust)
    return judged.coverage


def find_coverage(lake: Lake, stream: Stream) -> list[Finding]:
    """What people should know of the table of `stream`, and of the bronze that it is made of."""
    row = read_generations(lake, stream.name).current
    return findings_on(lake, stream, table_coverage(lake, stream), row=row)


def findings_on(
    lake: Lake, stream: Stream, judged: TableCoverage, row: GenerationRow | None
) -> list[Finding]:
    """The findings for a verdict; `row` is of the current generation, None before the first run."""
    of_bronze = _of_bronze(lake, stream, judged)
    if row is None and not lake.is_delta_table(lake.table(stream.name)):
        return of_bronze  # it has not run; or nothing is left of it but a checkpoint, which its run refuses
    if judged.distrust is not None:
        return [*of_bronze, distrusted(stream, lake.table(stream.name), judged.distrust)]
    if row is None:
        return of_bronze
    of_table = coverage_findings(
        stream, judged.coverage, row["output_mode"] == "append", is_mapped=has_mapped(row)
    )
    return [*of_bronze, *of_table]


def _of_bronze(lake: Lake, stream: Stream, judged: TableCoverage) -> list[Finding]:
    changed = judged.bronze_changed
    found = [] if changed is None else [bronze_finding(stream.source, changed)]
    return found if judged.unfinished is None else [*found, unfinished_erasure(stream)]


def coverage_text(lake: Lake, stream: Stream) -> str:
    """Until when the table of `stream` is complete, where it is right, and where not."""
    judged = table_coverage(lake, stream)
    if judged.bronze_changed is not None:
        return f"what {stream.name} is made of is not what was ingested: {judged.bronze_changed}"
    if judged.distrust is not None:
        return f"{lake.table(stream.name)} is not what was recorded of it: {judged.distrust}"
    if judged.unfinished is not None:
        return judged.unfinished
    coverage = judged.coverage
    if coverage.until_us is None:
        return f"{stream.name} has nothing complete yet"
    until = f"{stream.name} is complete until {instant_text(coverage.until_us)} UTC"
    if not coverage.wrong:
        return f"{until}, and right until there. {what_else(lake, stream)}"
    return f"{until}, but not right {spans_text(coverage.wrong)}.\n{what_else(lake, stream)}"


def what_else(lake: Lake, stream: Stream) -> str:
    """What an operation has left that is not right, in words for a task log."""
    found = find_coverage(lake, stream)
    if not found:
        return f"All of the table of {stream.name} is right, and so is its live state"
    return "\n".join(f"{finding.detail}: {finding.action}" for finding in found)


def _as_now(lake: Lake, identity: StreamIdentity, row: GenerationRow | None) -> Standpoint:
    return Standpoint(
        stream=identity.stream,
        source=identity.source,
        is_append=identity.output_mode == "append",
        in_processing_time=identity.time_column == "ingested_at",
        code=identity.code,
        since_us=identity.since_us,
        bronze_id=_bronze_id(lake, identity.source),
        reset_us=unknown_reset_us(lake, identity.source, row),
    )


def _as_recorded(lake: Lake, stream: Stream, row: GenerationRow | None) -> Standpoint:
    bronze_id = _bronze_id(lake, stream.source)
    return standpoint_of(stream, row, bronze_id, unknown_reset_us(lake, stream.source, row))


def standpoint_of(
    stream: Stream, row: GenerationRow | None, bronze_id: str | None, reset_us: int | None
) -> Standpoint:
    """What a table is judged from by the code that ran last; `row` is of the current generation."""
    known = row or GenerationRow()
    as_of = known.get("initial_as_of")
    return Standpoint(
        stream=stream.name,
        source=stream.source,
        is_append=known.get("output_mode") == "append",
        in_processing_time=known.get("timeout") == IN_PROCESSING_TIME,
        code=None,
        since_us=None if as_of is None else micros_of(as_of),
        bronze_id=bronze_id,
        reset_us=reset_us,
    )


def _bronze_id(lake: Lake, source: str) -> str | None:
    path = lake.bronze(source)
    return str(open_table(path).metadata().id) if lake.is_delta_table(path) else None
