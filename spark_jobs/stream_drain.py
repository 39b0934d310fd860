"""One availableNow run of a stream: what every job that moves its checkpoint on does."""

from dataclasses import replace
from datetime import timedelta
from functools import cache

from include.care.rocksdb.profiles import profile_for_run
from include.checkpoint.batches import complete_until, last_batch, record_progress
from include.checkpoint.log_retention import needed_commit
from include.checkpoint.offsets import newest_committed, newest_planned
from include.checkpoint.pin_generation import (
    is_other_code,
    note_code,
    pin_generation,
    refuse_foreign_checkpoint,
)
from include.checkpoint.position import is_settled
from include.checkpoint.row_counts import RowCountError, check_rows_add_up
from include.coverage.entries import Entry
from include.coverage.ledger import begin_live, reconcile, seal_made
from include.fold.ddl import event_ddl
from include.fold.definition import KeyedFold
from include.lake.findings import Finding, record_error, record_findings
from include.lake.generations import (
    is_reseeded,
    read_generations,
)
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.lake.run_findings import findings_of_run
from include.plans.stream_identity import stream_identity
from include.registry import source_named
from include.settings import SettingsError, Stream
from include.spark.conf import COMPACTING
from include.stream_definition import load_definition, pinned_settings
from spark_jobs.engines.engine import Engine, LiveQuery, ProductTable
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.job import RunRecord
from spark_jobs.stream_start import plan_start, write_initial_rows

# Ingest goes on in other Dags of the source.
INGEST_PATIENCE = timedelta(minutes=10)


def drain_stream(
    engine: Engine, lake: Lake, stream: Stream, record: RunRecord, compacting: bool = False
) -> None:
    """Fold what is new in bronze, and add to the run's `record` what was done.

    `compacting`: under the settings of a compaction, and each file a batch of its own, so that
    only clock rows may be new. To be called under the stream's lease. Raises the engine's own
    error (Spark: StreamingQueryException) when a batch fails.
    """
    stream = as_pinned(lake, stream)
    profile = profile_for_run(lake, stream)
    definition = load_definition(stream)
    fold = definition.fold
    generation = read_generations(lake, stream.name).number
    reconcile(lake, stream.name)
    refuse_foreign_checkpoint(lake, stream.name, generation)
    code = stream_identity(lake, stream).code
    refuse_unreadable_events(engine, lake, stream.name, generation, fold, code)
    start = plan_start(engine, lake, stream.name, generation, fold)
    table = engine.product_table(lake, stream, definition)
    ensure(lake, stream.name, table)
    engine.check_events(lake, stream.source, fold)
    # Last: what a failed first attempt got wrong must not be pinned.
    pins = pinned_settings(stream, fold) | start.pins
    code_is_new = pin_generation(lake, stream, generation, pins, code, event_ddl(fold))

    @cache
    def covered() -> Entry:
        """What is recorded of a run before its first row, and not if it comes to none."""
        note_code(lake, stream.name, generation, code, code_is_new, event_ddl(fold))
        if code_is_new:
            record_findings(lake, record["run_id"], stream.name, [code_changed(stream.name)])
        return begin_live(lake, stream.name, code, record["run_id"])

    writer = BatchWriter(
        lake,
        stream.name,
        generation,
        table,
        engine.rejected_table(lake, stream.name),
        covered,
        record["run_id"],
        start.kept_at_start,
        profile.number,
        start.pending_at_start,
    )
    if start.first_version is not None:
        begin_seeded_generation(engine, lake, stream, generation)
    write_initial_rows(lake, table, fold, stream.name, generation, start, covered)
    query = LiveQuery(
        lake,
        stream,
        fold,
        lake.checkpoint(stream.name, generation),
        start.seed,
        start.first_version,
        compacting,
        {**profile.conf(), **(COMPACTING if compacting else {})},
    )
    _run(engine, query, writer, generation, record)
    reconcile(lake, stream.name)
    record_position(lake, stream, generation, record)
    check_rows(lake, stream, generation, record["run_id"])


def ensure(lake: Lake, stream: str, table: ProductTable) -> None:
    """Make the table unless it is there: what was recorded of one before it is not of this one."""
    is_new = not lake.is_delta_table(lake.table(stream))
    table.ensure()
    if is_new:
        seal_made(lake, stream)


def refuse_unreadable_events(
    engine: Engine, lake: Lake, stream: str, generation: int, fold: KeyedFold, code: str
) -> None:
    """SettingsError when the Event record has changed so that events which wait are none of it.

    Workers would find out in the middle of a batch. Their state is read only after a change.
    """
    checkpoint = lake.checkpoint(stream, generation)
    if newest_committed(lake, checkpoint) is None:
        return
    pinned = read_generations(lake, stream).pinned(generation)
    recorded = pinned["event_schema"]
    # Of a generation of release 0.5 only the code says whether anything can have changed.
    changed = is_other_code(pinned, code) if recorded is None else recorded != event_ddl(fold)
    if changed and (problem := engine.unreadable_events(checkpoint, fold)) is not None:
        raise SettingsError(problem)


def _run(
    engine: Engine, query: LiveQuery, writer: BatchWriter, generation: int, record: RunRecord
) -> None:
    """Run the query, and record what came of it, also when it fails."""
    lake, stream = query.lake, query.stream.name
    try:
        measured = engine.drain(query, writer)
    finally:
        newest = newest_committed(lake, query.checkpoint)
        record |= writer.totals(newest)
        findings = findings_of_run(writer.committed(newest), writer.rejected_keys(newest))
        record_findings(lake, record["run_id"], stream, findings)
    record_progress(lake, stream, generation, measured)


def as_pinned(lake: Lake, stream: Stream) -> Stream:
    """`stream` with the buckets and state partitions that its generation was made with.

    The entry's are for a first generation; afterwards only a reseed changes them.
    """
    row = read_generations(lake, stream.name).current
    if row is None or not is_reseeded(row):
        return stream
    return replace(stream, buckets=row["buckets"], state_partitions=row["state_partitions"])


def begin_seeded_generation(engine: Engine, lake: Lake, stream: Stream, generation: int) -> None:
    """Give a reseeded generation something to read, so that its first batch takes the seed in."""
    if newest_planned(lake, lake.checkpoint(stream.name, generation)) is None:
        with hold_lease(lake, f"ingest-{stream.source}", INGEST_PATIENCE):
            engine.append_still_row(lake, source_named(stream.source))


def stay_in_log(engine: Engine, lake: Lake, stream: Stream) -> None:
    """Give a stream something to read that has to read on: before bronze's log is cut at what its
    last run has read (two runs, where commits without rows came after that), and to settle what
    a run that was cut off has left."""
    needed = needed_commit(lake, stream.name, stream.source)
    row = read_generations(lake, stream.name).current
    # An update table shows the keys of a batch that was not settled for the others, too.
    is_update = row is not None and row["output_mode"] == "update"
    checkpoint = lake.checkpoint(stream.name, read_generations(lake, stream.name).number)
    ahead = is_update and not is_settled(lake, checkpoint)
    if ahead or (needed is not None and needed.is_growing_old):
        with hold_lease(lake, f"ingest-{stream.source}", INGEST_PATIENCE):
            engine.append_still_row(lake, source_named(stream.source))


def code_changed(stream: str) -> Finding:
    """A warning: the state is now made by two codes."""
    return Finding(
        finding="code_changed",
        severity="warning",
        detail="The stream's function, settings or initial state are not those that its state was "
        "made with: from here on its rows come of both. Its live savepoints serve no backfill",
        action=f"to have all of it by the new code: make reseed STREAM={stream} RECOMPUTE=1 APPLY=1",
    )


def record_position(lake: Lake, stream: Stream, generation: int, record: RunRecord) -> None:
    """How far the table is complete, and what waits, into the run's record."""
    record["until"] = complete_until(lake, stream.name, generation)
    newest = last_batch(lake, stream.name, generation)
    if newest is not None:
        record["rows_pending"] = newest["rows_pending"]


def check_rows(lake: Lake, stream: Stream, generation: int, run_id: str) -> None:
    """Fail the run, with a finding, when rows do not add up."""
    try:
        check_rows_add_up(lake, stream.name, stream.source, generation)
    except RowCountError as error:
        record_error(lake, run_id, stream.name, "rows_do_not_add_up", error)
        raise
