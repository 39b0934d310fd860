"""Whether a stream's table is right by its file as it is now: the one verdict.

The command line, the page, plans, checks, alerts and metrics ask here. Reads only.
"""

from dataclasses import dataclass, replace

from include.catalogue import FINDINGS
from include.fold.admission import micros_of
from include.fold.group_state import GroupStateTimeout
from include.ingest.amendments import amendments_of
from include.ingest.ingest_log import how_bronze_changed
from include.lake.delta_log import open_table
from include.lake.errors import how_to_mend
from include.lake.findings import Finding
from include.lake.generations import GenerationRow
from include.lake.paths import Lake
from include.settings import Stream
from include.stream.judge import (
    Coverage,
    ReadLate,
    Span,
    coverage_findings,
    instant_text,
    judge,
    spans_text,
)
from include.stream.manifest import StreamIdentity, mapped_savepoint
from include.stream.open_stream import OpenStream, open_stream
from include.stream.record import BEGINNING_US


@dataclass(frozen=True)
class StreamStatus:
    """A stream's table, judged: where it is right, and why nothing of that counts, if so."""

    opened: OpenStream
    coverage: Coverage
    bronze_changed: str | None = None  # how others have changed what it is made of
    unfinished: str | None = None  # an erasure of a key that it may have

    @property
    def doubt(self) -> str | None:
        """Why nothing that is judged of it counts; None when it does."""
        return self.opened.distrust or self.bronze_changed or self.unfinished

    @property
    def is_right(self) -> bool:
        """Whether it has every row that it is to have until now, and no other.

        Of nothing that is complete nothing is right.
        """
        is_complete = self.coverage.until_us is not None
        return self.doubt is None and is_complete and not self.coverage.wrong

    @property
    def live_is_right(self) -> bool:
        """Whether its state is right, from which the next rows come."""
        return self.doubt is None and self.coverage.live_is_right

    def text(self) -> str:
        """The verdict for people, in one line."""
        coverage = self.coverage
        if self.doubt is not None:
            return f"cannot be counted on: {self.doubt}"
        if coverage.until_us is None:
            return "has nothing complete yet"
        until = f"is complete until {instant_text(coverage.until_us)} UTC"
        if coverage.wrong:
            return f"{until}, and not right {spans_text(coverage.wrong)}"
        return f"{until}, and right{'' if self.live_is_right else '; its live state is not'}"

    @property
    def findings(self) -> list[Finding]:
        """What people should know of the table, and of the bronze that it is made of."""
        opened, row, found = self.opened, self.opened.row, []
        if self.bronze_changed is not None:
            mend = str(how_to_mend(f"bronze/{opened.source}"))
            known = FINDINGS["bronze_changed"]
            found.append(known.found(opened.source, self.bronze_changed, mend))
        if self.unfinished is not None:
            known, mend = (
                FINDINGS["erasure_unfinished"],
                f"`./stateful erase {opened.source} KEY --apply`",
            )
            found.append(known.found(opened.source, self.unfinished, mend))
        table = opened.lake.table(opened.name)
        if row is None and not opened.lake.is_delta_table(table):
            return found  # it has not run; or a checkpoint alone is left, which its run refuses
        if opened.distrust is not None:
            mend = str(how_to_mend(f"checkpoints/{opened.name}"))
            said = f"{table} is not what was recorded of it: {opened.distrust}"
            return [*found, FINDINGS["table_changed"].found(opened.name, said, mend)]
        if row is None:
            return found
        is_append, is_mapped = row["output_mode"] == "append", mapped_savepoint(row["code"])
        of_table = coverage_findings(opened.name, self.coverage, is_append, is_mapped is not None)
        return [*found, *of_table]


def stream_status(lake: Lake, stream: Stream, read_late: ReadLate | None = None) -> StreamStatus:
    """The verdict of now. Who asks of many streams gives a `read_late` that reads a bronze once.

    SettingsError when the stream's file or its initial state is wrong.
    """
    opened = open_stream(lake, stream)
    return _status(opened, judged(opened, opened.identity, read_late))


def status_of_run(lake: Lake, stream: Stream) -> StreamStatus:
    """The verdict by the code of the newest run, for the check after it, which is not to load that anew."""
    opened = open_stream(lake, stream)
    row, own = opened.row or GenerationRow(), opened.record.own
    as_of = row["initial_as_of"]
    in_processing_time = row["timeout"] == GroupStateTimeout.ProcessingTimeTimeout
    ran = StreamIdentity(
        stream=stream.name,
        source=stream.source,
        output_mode=row["output_mode"],
        time_column="ingested_at" if in_processing_time else "event_time",
        delay_us=0,  # each entry has its own
        code="" if own is None else own.codes[-1],
        state_schema=row["state_schema"],
        since_us=None if as_of is None else micros_of(as_of),
    )
    return _status(opened, judged(opened, ran))


def _status(opened: OpenStream, coverage: Coverage) -> StreamStatus:
    erasure = amendments_of(opened.lake, opened.source).unfinished_erasure(opened.row)
    return StreamStatus(
        opened,
        coverage,
        bronze_changed=how_bronze_changed(opened.lake, opened.source),
        unfinished=None if erasure is None else erasure.unfinished(opened.name).message,
    )


def judged(
    opened: OpenStream, identity: StreamIdentity, read_late: ReadLate | None = None
) -> Coverage:
    """Where the table is right by the code of `identity`, if it is what was recorded of it; LakeError when
    bronze cannot be read."""
    if opened.lake.is_delta_table(bronze := opened.lake.bronze(identity.source)):
        open_table(bronze)
    coverage = judge(opened.lake, opened.record.entries, identity, _reset_us(opened), read_late)
    return _ahead(coverage) if opened.is_ahead else coverage


def dead_letters_coverage(opened: OpenStream, identity: StreamIdentity) -> Coverage:
    """The same of its dead letters: they are of the fold that the record names, each at its own
    instant, also where the table shows one state."""
    as_append = replace(identity, output_mode="append")
    return judge(opened.lake, opened.record.entries, as_append, _reset_us(opened))


def _ahead(coverage: Coverage) -> Coverage:
    """Of an update table that shows some keys as of a later instant than the others."""
    if coverage.until_us is None:
        return coverage
    span = Span(BEGINNING_US, coverage.until_us, "cut off")
    return replace(coverage, spans=coverage.wrong or (span,))


def _reset_us(opened: OpenStream) -> int | None:
    """Since when bronze goes by a clock set back that the state does not know of: what has come since may be in
    time by the clock of now, and behind what the state has settled."""
    repair = amendments_of(opened.lake, opened.source).unknown_repair(opened.row)
    return None if repair is None else repair.amended
