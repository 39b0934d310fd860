"""An ingest run: what has landed for a source goes into bronze, what is no event into quarantine.

    python -m include.ingest.ingest --source signals --lake lake

Little is parsed and written here, without a JVM (`parsed_here`); much by a job of Spark
(spark_jobs/ingest_source.py). The ingest log decides what is ingested (ingest_log.py).

When a source falls silent, no watermark moves and no timeout fires. So a run of a source with a
`heartbeat_delay` may end with a heartbeat, which says: all that happened until then has landed.
"""

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from include import job
from include.catalogue import FINDINGS
from include.fold.admission import EPOCH, US_PER_MS, micros_of, parse_instant
from include.ingest.amendments import AMENDMENT, amendments_in
from include.ingest.bronze_tables import follow_fields
from include.ingest.ingest_log import (
    KEEPALIVE,
    Ingestion,
    has_to_replay,
    read_done,
    read_log,
    refuse_other_connector,
)
from include.ingest.landed_values import shown
from include.ingest.parse_files import Counts, Parse, bronze_rows, parsed_here
from include.ingest.source_connector import connector_of, lag_of_run, place_of
from include.ingest.watermark import SourceWatermark, advance_watermark, set_watermark_back
from include.job import RunRecord
from include.lake.delta_log import is_there
from include.lake.errors import LakeError
from include.lake.lease import hold_lease
from include.lake.ops import Finding, read_ops, record_findings
from include.lake.paths import Lake, open_lake
from include.registry import inputs_first, source_named, streams_of
from include.settings import MILLISECOND, RESCUED, Source
from include.text_table import counted

log = logging.getLogger("job.ingest")


def ingest(
    lake: Lake,
    source: Source,
    record: RunRecord | None = None,
    interval_end: datetime | None = None,
    parse: Parse = parsed_here,
) -> Counts:
    """Ingest all that has landed, write a heartbeat where one is due; a `record` gets the counts."""
    run_id = (record or {}).get("run_id")
    ingestion = prepare(lake, source)
    counts, found = Counts(), list[Finding]()
    try:
        ingestion.finish()  # what an earlier run has logged, and the tables lack
        follow_fields(ingestion.bronze, source)
        connector = connector_of(lake, source)
        # What comes meanwhile waits for the next run.
        while batch := ingestion.again(lambda: connector.take_next(ingestion, parse, run_id)):
            counts += batch
        found = write_heartbeat(ingestion, interval_end, datetime.now(UTC))
        if (groups := ingestion.watermark().groups) is not None:
            found += groups.held_back()
    finally:
        if record is not None:
            record |= counts.of_run()
        if counts.skipped:
            said = f"passed over: {counted(counts.skipped, 'message')} without a value of {place_of(source)}"
            skipped = FINDINGS["tombstones_skipped"].found
            found.append(skipped(source.name, said, count=counts.skipped))
        found += new_fields(lake, source, counts.unknown)
        record_findings(lake, run_id, source.name, found)
    return counts


def prepare(lake: Lake, source: Source) -> Ingestion:
    """The log and tables of a source, made where a lake is new; raises LakeError where they do not fit."""
    ingestion = Ingestion(lake, source)
    amendments_in(ingestion.logged, source.name).refuse_before_amended("ingestion")
    refuse_other_connector(source, ingestion.logged.done())
    if source.connector is None:
        landing = lake.path_in_filesystem(lake.landing(source.name))
        lake.filesystem.create_dir(landing, recursive=True)
    return ingestion


MOST_UNKNOWN = 20  # findings of one run; a file can have any number


def new_fields(lake: Lake, source: Source, unknown: Mapping[str, int]) -> list[Finding]:
    """A finding for each field of `unknown` (name to rows) that has none yet."""
    if not unknown:
        return []
    rows = read_ops(lake, "findings", {"finding": "unknown_field", "subject": source.name})
    known = set(rows["detail"].to_pylist())
    retained = f"landed for {source.name}, which has no such field: bronze keeps it in {RESCUED}"
    details = {f"{shown(name)} {retained}": count for name, count in sorted(unknown.items())}
    new = [detail for detail in details if detail not in known][:MOST_UNKNOWN]
    found = FINDINGS["unknown_field"].found
    return [found(source.name, detail, count=details[detail]) for detail in new]


def why_not_ingest(
    lake: Lake, source: Source, interval_end: datetime | None, now: datetime
) -> str | None:
    """The reason why an ingest run would change nothing; None when it would, or only it can tell."""
    inputs = [source_named(name) for name in source.inputs]
    if None in [why_not_ingest(lake, each, interval_end, now) for each in inputs]:
        return None
    lag = lag_of_run(lake, source)
    if lag.waiting or has_to_replay(lake, source):
        return None  # the run does that, or fails and says so
    logged = read_log(lake, source.name)
    if amendments_in(logged, source.name).set_watermark is not None:
        return None  # as above
    nothing_new = lag.held or f"nothing new in {place_of(source)}"
    if source.heartbeat_delay is None:
        return nothing_new
    watermark_us = None if logged is None else logged.watermark(source).watermark_us
    target_us, _ = heartbeat_target(lake, source, watermark_us, min(interval_end or now, now))
    if target_us is not None and lagging_producer(lake, source) is None:
        return None
    return f"{nothing_new}, and no heartbeat is due"


def heartbeat_target(
    lake: Lake, source: Source, watermark_us: int | None, end: datetime
) -> tuple[int | None, bool]:
    """The watermark after a heartbeat, None for no heartbeat; and True if `max_clock_step` bounds it.

    Before any data there is a heartbeat only with an initial state: whatever lands first may be old,
    and all of it would be late.
    """
    if source.heartbeat_delay is None:
        return None, False
    due_us = (end - EPOCH - source.heartbeat_delay) // MILLISECOND * US_PER_MS
    if watermark_us is None:
        return due_us if has_initial_state(lake, source) else None, False
    if due_us <= watermark_us:
        return None, False
    step = source.max_clock_step
    most_us = due_us if step is None else watermark_us + step // MILLISECOND * US_PER_MS
    return min(most_us, due_us), most_us < due_us


def has_initial_state(lake: Lake, source: Source) -> bool:
    """True if a stream of the source starts from an initial state, a table or a file."""
    return any(
        lake.is_delta_table(lake.initial_state(stream.name))
        or is_there(lake, lake.initial_state_file(stream.name))
        for stream in streams_of(source.name)
    )


def landing_lag(lake: Lake, source: Source) -> str | None:
    """The reason to think that rows are missing after all splits are read; None without one."""
    lag = connector_of(lake, source).lag(read_done(lake, source.name))
    if lag.waiting:
        return f"{lag.waiting} more have come to {place_of(source)} meanwhile"
    return lag.held or lagging_producer(lake, source)


# A producer that knows it is behind puts a file of this name directly in landing/<source>.
LAGGING = "_lagging"


def lagging_producer(lake: Lake, source: Source) -> str | None:
    """The lag that a producer's marker file tells; None without one."""
    marker = f"{lake.landing(source.name)}/{LAGGING}"
    return f"{marker} says that a producer is behind" if is_there(lake, marker) else None


def heartbeat(source: Source, before: SourceWatermark, after: SourceWatermark) -> pa.Table:
    """The row of bronze that is no event, and moves the watermark from `before` to `after`."""
    events = pa.table({"event_time_us": [after.watermark_us], "source_file": pa.nulls(1)})
    return bronze_rows(source, events, before, after)


def write_heartbeat(
    ingestion: Ingestion, interval_end: datetime | None, now: datetime
) -> list[Finding]:
    """Move the watermark of a silent source on, unless rows are missing; a bounded step is a finding."""
    lake, source = ingestion.lake, ingestion.source
    if source.heartbeat_delay is None:
        return []
    if (lag := landing_lag(lake, source)) is not None:
        log.info("no heartbeat of %s: %s", source.name, lag)
        return []

    def write() -> bool:
        before, now_us, end = ingestion.watermark(), micros_of(now), min(interval_end or now, now)
        target_us, is_bounded = heartbeat_target(lake, source, before.watermark_us, end)
        if target_us is None:
            return False
        after = advance_watermark(before, target_us, now_us)
        # Where groups hold it back, time passes by it for who is silent. Not at one instant twice.
        if after.watermark_us != before.watermark_us or now_us > (before.ingested_at_us or 0):
            ingestion.commit_rows(before, after, heartbeat(source, before, after))
        return is_bounded and after.watermark_us == target_us

    if not ingestion.again(write):
        return []
    said = (
        f"more of {source.name} should have landed than one run moves the watermark on by, "
        f"{source.max_clock_step} (max_clock_step). The next run goes on from there"
    )
    return [FINDINGS["heartbeat_bounded"].found(source.name, said)]


def write_keepalive(lake: Lake, source: Source) -> None:
    """Append a heartbeat that moves nothing, so that a stream has a row to read; LakeError without rows."""

    def write(ingestion: Ingestion) -> None:
        known = ingestion.watermark()
        if known.watermark_us is None:
            said = f"{lake.bronze(source.name)} has no row yet: ingest first"
            raise LakeError(said, code="nothing_there", subject=source.name)
        ingestion.commit_rows(known, known, heartbeat(source, known, known), **{KEEPALIVE: True})

    _write_once_finished(lake, source, write)


def write_set_watermark(lake: Lake, source: Source, now_us: int) -> None:
    """Append the heartbeat that sets the watermark back, for the amendment that was begun; once."""

    def write(ingestion: Ingestion) -> None:
        amendment = amendments_in(ingestion.logged, source.name).set_watermark
        if amendment is not None:
            before = ingestion.watermark()
            after = set_watermark_back(before, amendment.to_us, now_us)
            note = {AMENDMENT: amendment.number, "amended": after.ingested_at_us}
            ingestion.commit_rows(before, after, heartbeat(source, before, after), **note)

    _write_once_finished(lake, source, write)


def _write_once_finished(lake: Lake, source: Source, write: Callable[[Ingestion], None]) -> None:
    ingestion = Ingestion(lake, source)
    ingestion.finish()
    ingestion.again(lambda: write(ingestion))


# A compaction of a stream's state holds the lease for half a minute or so.
COMPACTION_PATIENCE = timedelta(minutes=2)


def parse_args(arguments: Sequence[str] | None = None) -> Namespace:
    parser = job.job_parser(__doc__, "source")
    said = "where the Dag run's data interval ends; empty or left out: now"
    parser.add_argument("--interval-end", metavar="INSTANT", help=said)
    return parser.parse_args(arguments)


def run(parse_on: Callable[[Lake], Parse]) -> None:
    """Ingest as the command line says; `parse_on` gives what parses landed rows."""
    arguments = parse_args()
    lake, end = open_lake(arguments.lake), arguments.interval_end
    interval_end = parse_instant("--interval-end", end) if end else None
    for source in inputs_first(source_named(arguments.source)):
        with (
            hold_lease(lake, f"ingest-{source.name}", COMPACTION_PATIENCE),
            job.recorded_run(lake, "ingest_source", source.name, arguments.dag_run_id) as record,
        ):
            ingest(lake, source, record, interval_end, parse_on(lake))


def main() -> None:
    run(lambda lake: parsed_here)


if __name__ == "__main__":
    job.exit_with_main(main)
