"""One availableNow run of a stream, and how its first run begins: every job that moves a checkpoint on does this."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from typing import Any

from include.care.rocksdb.tune_rocksdb import profile_for_run
from include.checkpoint.bronze_readers import needed_commit
from include.checkpoint.checkpoint_files import newest_committed, newest_planned
from include.checkpoint.committed_batch import (
    RowCountError,
    check_rows_add_up,
    is_settled,
    last_batch,
    record_progress,
    settled_until,
)
from include.checkpoint.pin_generation import (
    note_code,
    note_query,
    pin_generation,
    refuse_foreign_checkpoint,
    refuse_other_settings,
)
from include.coverage.entries import Entry
from include.coverage.ledger import begin_live, reconcile, seal_made
from include.coverage.marks import mark_of
from include.fold.admission import instant_of, micros_of
from include.fold.ddl import event_ddl
from include.fold.definition import KeyedFold
from include.fold.product_table import ensure_product
from include.job import RunRecord
from include.lake.findings import Finding, findings_of_run, record_error, record_findings
from include.lake.generations import GenerationRow, is_reseeded
from include.lake.lease import hold_lease
from include.lake.paths import Lake, LakeError
from include.landing.bronze_tables import add_fields
from include.landing.initial_state import read_fingerprint
from include.plans.open_stream import OpenStream
from include.plans.shared_jvm import is_small
from include.plans.stream_identity import key_fingerprint
from include.registry import source_named
from include.savepoints.bronze_pin import has_commit, pin_bronze
from include.savepoints.manifest import savepoint_at
from include.settings import SettingsError
from include.spark.conf import COMPACTING
from include.stream_definition import pinned_settings
from spark_jobs.engines.data_checks import DataChecks
from spark_jobs.engines.engine import Engine, LiveQuery, ProductTable, Rows, Seed
from spark_jobs.engines.live_batch import BatchWriter
from spark_jobs.live_savepoint import states_of_base


@dataclass(frozen=True)
class Start:
    """What a run of a stream stands on beside its settings."""

    seed: Seed | None = None
    pins: dict[str, Any] = field(default_factory=dict)  # columns of ops/generations
    kept_at_start: int = 0
    pending_at_start: int = 0
    first_version: int | None = None  # of bronze; None: all that there is


def plan_start(engine: Engine, opened: OpenStream) -> Start:
    """The start of a stream's next run; SettingsError when the initial state is no good."""
    lake, fold, row = opened.lake, opened.fold, opened.row
    if row is not None and is_reseeded(row):
        return _after_reseed(engine, lake, row, fold=fold)
    if newest_committed(lake, opened.checkpoint) is not None:
        return _resume(opened)
    initial = engine.initial_states(lake, opened.name, fold)
    if initial is None:
        return Start(pins={"initial_state": None, "initial_as_of": None})
    pins = {
        "initial_state": initial.fingerprint,
        "initial_as_of": instant_of(initial.as_of_us),
    }
    seed = Seed(initial.as_of_us, initial.states)
    return Start(seed, pins, _kept_without_timeout(engine, initial.states, fold))


def _kept_without_timeout(engine: Engine, states: Rows, fold: KeyedFold) -> int:
    return engine.count_without_timeout(states) if fold.times_out and fold.ttl is None else 0


def _resume(opened: OpenStream) -> Start:
    """The checkpoint has the initial state; it must still be the one that was pinned."""
    pinned = opened.generations.pinned(opened.generation)
    as_of = pinned["initial_as_of"]
    seed = None if as_of is None else Seed(micros_of(as_of), None)
    initial = read_fingerprint(opened.lake, opened.name, pinned["initial_state"])
    return Start(seed, {"initial_state": initial})


def _after_reseed(engine: Engine, lake: Lake, row: GenerationRow, fold: KeyedFold) -> Start:
    """The savepoint of the reseed, and the events that waited then; or a checkpoint with both."""
    stream, as_of_us = row["stream"], micros_of(row["until"])
    pins = {"initial_state": read_fingerprint(lake, stream, row["initial_state"])}
    after = row["bronze_version"] + 1
    if newest_committed(lake, lake.checkpoint(stream, row["generation"])) is not None:
        return Start(Seed(as_of_us, None), pins, first_version=after)
    ingested_us = micros_of(row["bronze_ingested_at"])
    if not has_commit(pin_bronze(lake, row["source"]), ingested_us):
        # What came in its place has lower versions than the run would begin with: it would not be read.
        raise LakeError(
            f"{lake.bronze(row['source'])} does not have what the reseed to generation "
            f"{row['generation']} of {stream} has read of it: it is an older copy. Put the newer one "
            "back; or, begin with this one",
            code="of_other_times",
            subject=f"bronze/{row['source']}",
            command=f"./stateful reseed {stream} --apply",
        )
    savepoint = savepoint_at(lake, stream, row["seed_savepoint"])
    if savepoint is None:
        raise LakeError(
            f"savepoint {row['seed_savepoint']} is gone, with which generation "
            f"{row['generation']} of {stream} begins",
            code="unreadable_savepoint",
            subject=stream,
            command=f"./stateful reseed {stream} --apply",
        )
    states = states_of_base(engine, lake, savepoint, whose=f"generation {row['generation']}")
    kept = _kept_without_timeout(engine, states, fold)
    waiting = engine.events(lake, row["source"], fold, ingested_us, from_us=as_of_us, until_us=None)
    return Start(Seed(as_of_us, states, waiting), pins, kept, row["seed_pending"], after)


def write_initial_rows(
    opened: OpenStream,
    table: ProductTable,
    start: Start,
    covered: Callable[[], Entry],
    checks: DataChecks,
) -> None:
    """An update table shows all states from the beginning: also those without an event yet.

    Before the first batch is planned the whole table is replaced: an earlier attempt may have
    had another initial state. From then on it is pinned, and the rows are there.
    """
    planned = newest_planned(opened.lake, opened.checkpoint)
    if opened.fold.output_mode != "update" or start.seed is None or planned is not None:
        return
    if start.first_version is not None:
        return  # a reseed has written them
    states = start.seed.states
    if states is not None:
        of_states = partial(table.judge_states, states)
        checks.admit(of_states, "the initial state", opened.generation)
        table.replace_all(states, mark_of(covered()))


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
    checks = DataChecks(lake, stream, record, then=f"./stateful stream {stream.name}")
    checks.refuse_wrong(table)
    add_fields(lake, stream.source)
    engine.check_events(lake, stream.source, fold)
    covered = pinned_entry(opened, start, code, run_id=record["run_id"])
    writer = BatchWriter(
        lake,
        stream.name,
        opened.generation,
        table=table,
        rejected=engine.rejected_table(lake, stream.name),
        checks=checks,
        covered=covered,
        run_id=record["run_id"],
        kept_at_start=start.kept_at_start,
        profile=profile.number,
        pending_at_start=start.pending_at_start,
    )
    if start.first_version is not None and newest_planned(lake, opened.checkpoint) is None:
        append_still_row(engine, opened)  # something to read: its first batch takes the seed in
    write_initial_rows(opened, table, start, covered, checks)
    query = LiveQuery(
        lake,
        stream,
        fold,
        checkpoint=opened.checkpoint,
        seed=start.seed,
        first_version=start.first_version,
        compacting=compacting,
        settings={**profile.conf(), **(COMPACTING if compacting else {})},
        is_small=is_small(opened),
    )
    _run(engine, query, writer, checks=checks, generation=opened.generation, record=record)
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
    pinned = pin_generation(
        lake,
        stream,
        opened.generation,
        settings=settings,
        code=code,
        event_schema=events,
        key_code=key_code,
    )

    @cache
    def covered() -> Entry:
        """What is recorded of a run before its first row, and not if it comes to none."""
        row = note_code(lake, pinned, code, event_schema=events)
        if pinned.code_is_new:
            record_findings(lake, run_id, stream.name, findings=[code_changed(stream.name)])
        return begin_live(lake, row, code, run_id=run_id)

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
        record_findings(lake, record["run_id"], stream, findings=findings)
    record_progress(lake, stream, generation, measured=measured)


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
    record["until"] = settled_until(opened.lake, opened.generations)
    newest = last_batch(opened.lake, opened.name, opened.generation)
    if newest is not None:
        record["rows_pending"] = newest["rows_pending"]


def check_rows(opened: OpenStream, run_id: str) -> None:
    """Fail the run, with a finding, when rows do not add up."""
    try:
        check_rows_add_up(opened.lake, opened.name, opened.source, generation=opened.generation)
    except RowCountError as error:
        record_error(opened.lake, run_id, opened.name, name="rows_do_not_add_up", error=error)
        raise
