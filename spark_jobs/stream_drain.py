"""One availableNow run of a stream: what every job that moves its checkpoint on does."""

from collections.abc import Callable
from datetime import timedelta
from functools import cache

from include.care.rocksdb.profile import profile_for_run
from include.checkpoint.batches import complete_until, last_batch, record_progress
from include.checkpoint.log_retention import needed_commit
from include.checkpoint.offsets import newest_committed, newest_planned
from include.checkpoint.pin_generation import (
    note_code,
    note_query,
    pin_generation,
    refuse_foreign_checkpoint,
    refuse_other_settings,
)
from include.checkpoint.position import is_settled
from include.checkpoint.row_counts import RowCountError, check_rows_add_up
from include.coverage.entries import Entry
from include.coverage.ledger import begin_live, reconcile, seal_made
from include.fold.ddl import event_ddl
from include.fold.product_table import ensure_product
from include.job import RunRecord
from include.lake.findings import Finding, record_error, record_findings
from include.lake.lease import hold_lease
from include.lake.run_findings import findings_of_run
from include.plans.code_fingerprint import key_fingerprint
from include.plans.open_stream import OpenStream
from include.plans.shared_jvm import is_small
from include.registry import source_named
from include.settings import SettingsError
from include.spark.conf import COMPACTING
from include.stream_definition import pinned_settings
from spark_jobs.engines.data_checks import DataChecks
from spark_jobs.engines.engine import Engine, LiveQuery
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.stream_start import Start, plan_start, write_initial_rows

INGEST_PATIENCE = timedelta(minutes=10)


def drain_stream(
    engine: Engine, opened: OpenStream, record: RunRecord, compacting: bool = False
) -> None:
    """Fold what is new in bronze, and add to the run's `record` what was done.

    `compacting`: under the settings of a compaction, and each file a batch of its own, so that
    only clock rows may be new. To be called under the stream's lease. Raises the engine's own
    error (Spark: StreamingQueryException) when a batch fails.
    """
    lake, stream, fold = opened.lake, opened.stream, opened.fold
    profile = profile_for_run(lake, stream)
    reconcile(lake, opened.generations)
    refuse_foreign_checkpoint(lake, opened.generations)
    code = opened.identity.code
    refuse_unreadable_events(engine, opened)
    start = plan_start(engine, opened)
    table = engine.product_table(lake, stream, opened.definition)
    if opened.row is not None:  # before the table, which does not fit other ones either
        refuse_other_settings(lake, opened.row, pinned_settings(stream, fold))
    ensure(opened)
    checks = DataChecks(lake, stream, record, f"`./stateful stream {stream.name}` goes on")
    checks.refuse_wrong(table)
    engine.check_events(lake, stream.source, fold)
    covered = pinned_entry(opened, start, code, record["run_id"])
    writer = BatchWriter(
        lake,
        stream.name,
        opened.generation,
        table,
        engine.rejected_table(lake, stream.name),
        checks,
        covered,
        record["run_id"],
        start.kept_at_start,
        profile.number,
        start.pending_at_start,
    )
    if start.first_version is not None:
        begin_seeded_generation(engine, opened)
    write_initial_rows(opened, table, start, covered, checks)
    query = LiveQuery(
        lake,
        stream,
        fold,
        opened.checkpoint,
        start.seed,
        start.first_version,
        compacting,
        {**profile.conf(), **(COMPACTING if compacting else {})},
        is_small(opened),
    )
    _run(engine, query, writer, checks, opened.generation, record)
    opened = opened.again()
    reconcile(lake, opened.generations)
    note_query(lake, opened.generations.pinned(opened.generation))
    record_position(opened, record)
    check_rows(opened, record["run_id"])


def pinned_entry(opened: OpenStream, start: Start, code: str, run_id: str) -> Callable[[], Entry]:
    """Pins what the generation stands on; the entry of the ledger is made when it is asked for.

    Last before the run: what a failed first attempt got wrong must not be pinned.
    """
    lake, stream, fold = opened.lake, opened.stream, opened.fold
    settings = pinned_settings(stream, fold) | start.pins
    events = event_ddl(fold)
    key_code = key_fingerprint(fold)
    pinned = pin_generation(lake, stream, opened.generation, settings, code, events, key_code)

    @cache
    def covered() -> Entry:
        """What is recorded of a run before its first row, and not if it comes to none."""
        row = note_code(lake, pinned, code, events)
        if pinned.code_is_new:
            record_findings(lake, run_id, stream.name, [code_changed(stream.name)])
        return begin_live(lake, row, code, run_id)

    return covered


def ensure(opened: OpenStream) -> None:
    """Make the table unless it is there: what was recorded of one before it is not of this one."""
    lake, stream = opened.lake, opened.name
    is_new = not lake.is_delta_table(lake.table(stream))
    ensure_product(lake.table(stream), opened.definition)
    if is_new:
        seal_made(lake, stream)


def refuse_unreadable_events(engine: Engine, opened: OpenStream) -> None:
    """SettingsError when the Event record has changed so that events which wait are none of it.

    Workers would find out in the middle of a batch. Their state is read only after a change.
    """
    fold, checkpoint = opened.fold, opened.checkpoint
    if newest_committed(opened.lake, checkpoint) is None:
        return
    pinned = opened.generations.pinned(opened.generation)
    changed = pinned["event_schema"] != event_ddl(fold)
    if changed and (problem := engine.unreadable_events(checkpoint, fold)) is not None:
        raise SettingsError(
            problem,
            code="settings_changed",
            subject=opened.name,
            command=f"./stateful reseed {opened.name} --apply",
        )


def _run(
    engine: Engine,
    query: LiveQuery,
    writer: BatchWriter,
    checks: DataChecks,
    generation: int,
    record: RunRecord,
) -> None:
    """Run the query, and record what came of it, also when it fails."""
    lake, stream = query.lake, query.stream.name
    try:
        measured = engine.drain(query, writer)
    except Exception:
        if checks.stopped is not None:  # what Spark makes of it is long
            raise checks.stopped from None
        raise
    finally:
        newest = newest_committed(lake, query.checkpoint)
        record |= writer.totals(newest)
        findings = findings_of_run(writer.committed(newest))
        record_findings(lake, record["run_id"], stream, findings)
    record_progress(lake, stream, generation, measured)


def begin_seeded_generation(engine: Engine, opened: OpenStream) -> None:
    """Give a reseeded generation something to read, so that its first batch takes the seed in."""
    if newest_planned(opened.lake, opened.checkpoint) is None:
        append_still_row(engine, opened)


def stay_in_log(engine: Engine, opened: OpenStream) -> None:
    """Give a stream something to read that has to read on: before bronze's log is cut at what its
    last run has read (two runs, where commits without rows came after that), and to settle what
    a run that was cut off has left."""
    needed = needed_commit(opened.lake, opened.generations, opened.source)
    # An update table shows the keys of a batch that was not settled for the others, too.
    is_update = opened.row is not None and opened.row["output_mode"] == "update"
    ahead = is_update and not is_settled(opened.lake, opened.checkpoint)
    if ahead or (needed is not None and needed.is_growing_old):
        append_still_row(engine, opened)


def append_still_row(engine: Engine, opened: OpenStream) -> None:
    """Ingest goes on in other Dags of the source, so its lease is waited for."""
    with hold_lease(opened.lake, f"ingest-{opened.source}", INGEST_PATIENCE):
        engine.append_still_row(opened.lake, source_named(opened.source))


def code_changed(stream: str) -> Finding:
    """A warning: the state is now made by two codes."""
    return Finding(
        finding="code_changed",
        severity="warning",
        detail="The stream's function, settings or initial state are not those that its state was "
        "made with: from here on its rows come of both. Its live savepoints serve no backfill",
        action=f"to have all of it by the new code: `./stateful reseed {stream} --recompute --apply`",
    )


def record_position(opened: OpenStream, record: RunRecord) -> None:
    """How far the table is complete, and what waits, into the run's record."""
    record["until"] = complete_until(opened.lake, opened.name, opened.generation)
    newest = last_batch(opened.lake, opened.name, opened.generation)
    if newest is not None:
        record["rows_pending"] = newest["rows_pending"]


def check_rows(opened: OpenStream, run_id: str) -> None:
    """Fail the run, with a finding, when rows do not add up."""
    try:
        check_rows_add_up(opened.lake, opened.name, opened.source, opened.generation)
    except RowCountError as error:
        record_error(opened.lake, run_id, opened.name, "rows_do_not_add_up", error)
        raise
