"""Drain a stream: fold all of bronze that has not been folded, and write its Delta table.

    spark-submit spark_jobs/run_stream.py --stream user_counts --lake /data/lake

Running again with nothing new changes nothing, and a batch that was killed is finished by the next
run. Other small runs of the source that are due can be taken into the same JVM (`--also`).
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from include.catalogue import FINDINGS, findings_of_run
from include.fold.admission import instant_of
from include.fold.definition import event_ddl
from include.ingest.bronze_tables import add_fields
from include.ingest.ingest import write_keepalive
from include.ingest.initial_state import read_fingerprint
from include.job import RunRecord, job_parser, recorded_run
from include.lake.columns import arrow_type
from include.lake.dead_letters import put_back_dead_letters
from include.lake.errors import LakeError, RowCountError
from include.lake.generations import GenerationRow
from include.lake.lease import hold_lease
from include.lake.ops import append_ops, record_findings
from include.lake.paths import Lake
from include.maintain.tune_rocksdb import memory_of, run_settings, session_conf
from include.registry import declared, source_named
from include.settings import Stream, is_approval_needed
from include.spark.conf import COMPACTING
from include.stream.approvals import refuse_unapproved
from include.stream.bronze import needed_commit, refuse_cut_off, refuse_no_bronze
from include.stream.checkpoint import is_complete, newest_begun, newest_committed
from include.stream.manifest import SavepointError, refuse_damaged, savepoints_of
from include.stream.open_stream import OpenStream, has_waiting_rows, is_small, open_stream
from include.stream.record import (
    check_rows_add_up,
    refuse_new_code,
    refuse_other_settings,
    with_code,
)
from include.stream.stream_identity import code_parts
from include.stream_definition import pinned_settings
from spark_jobs.engines.engine import LiveQuery, Seed
from spark_jobs.engines.live_batch import BatchWriter, DataChecks, totals_of_run
from spark_jobs.engines.packed_files import check_bronze
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.engines.state_rows import refuse_other_events
from spark_jobs.job import close_state_stores, exit_with_main, stream_job
from spark_jobs.write_savepoint import write_if_due

log = logging.getLogger("job")

JOB = "run_stream"
INGEST_PATIENCE = timedelta(minutes=10)


def drain(engine: SparkEngine, lake: Lake, stream: Stream, dag_run_id: str | None = None) -> None:
    """Fold what is new in bronze and record the run; a batch that fails is repeated by the next."""
    refuse_no_bronze(lake, stream.source)
    with hold_lease(lake, f"stream-{stream.name}"):
        opened = open_stream(lake, stream)
        opened.refuse_run()
        with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as run:
            stay_in_log(opened)
            write_if_due(engine, drain_stream(engine, opened, run), run["run_id"])


def drain_others(
    engine: SparkEngine,
    lake: Lake,
    others: Sequence[Stream],
    dag_run_id: str | None,
    make_ready: Callable[[], None],
) -> None:
    """Drain each of `others` with waiting rows; one that fails is left to its own run.

    None is begun once `make_ready` fails, as the JVM has died: it would count as failed.
    """
    for stream in others:
        try:
            make_ready()
            if has_waiting_rows(lake, stream):
                drain(engine, lake, stream, dag_run_id)
        except Exception:
            log.exception("%s is left to its own run", stream.name)


class RunStart(NamedTuple):
    """The beginning of a run."""

    seed: Seed | None
    pins: dict[str, Any]  # columns of the generation's row for the initial state
    first_version: int | None = None  # of bronze; None: all of it


def plan_start(engine: SparkEngine, opened: OpenStream) -> RunStart:
    """Plan the start of a stream's next run.

    Raises SettingsError when the initial state is wrong, LakeError when the seed cannot be read.
    """
    lake, fold, row = opened.lake, opened.fold, opened.row or GenerationRow()
    has_begun = newest_committed(lake, opened.checkpoint) is not None
    if not has_begun and not opened.is_rebuilt:
        initial = engine.initial_states(lake, opened.name, fold)
        if initial is None:
            return RunStart(None, {"initial_state": None, "initial_as_of_us": None})
        pins = {"initial_state": initial.fingerprint, "initial_as_of_us": initial.as_of_us}
        return RunStart(Seed(initial.as_of_us, initial.states), pins)
    # The checkpoint or the savepoint has the initial state, which must still be the pinned one.
    pins = {"initial_state": read_fingerprint(lake, opened.name, row["initial_state"])}
    as_of_us = row["until_us"] if opened.is_rebuilt else row["initial_as_of_us"]
    after = row["bronze_version"] + 1 if opened.is_rebuilt else None
    if has_begun:
        seed = None if as_of_us is None else Seed(as_of_us, None)
        return RunStart(seed, pins, first_version=after)
    known, seed_id = savepoints_of(lake, opened.name), row["seed_savepoint"]
    savepoint = next((each for each in known if each.savepoint_id == seed_id), None)
    try:
        if savepoint is None:
            raise SavepointError(f"savepoint {seed_id} is gone")
        refuse_damaged(lake, savepoint)
    except SavepointError as error:
        raise LakeError(
            f"{error}. {opened.name} begins with it: put it back; or rebuild",
            code="unreadable_savepoint",
            subject=opened.name,
            command=f"./stateful rebuild {opened.name} --apply",
        ) from error
    states = engine.savepoint_states(lake, savepoint)
    bounds = Bounds(row["bronze_ingested_at_us"], as_of_us)
    seed = Seed(as_of_us, states, engine.events(lake, row["source"], fold, bounds))
    return RunStart(seed, pins, first_version=after)


def drain_stream(
    engine: SparkEngine, opened: OpenStream, run: RunRecord, compacting: bool = False
) -> OpenStream:
    """Fold what is new in bronze, under the stream's lease, and fill in the row of `ops/runs`.

    `compacting`: with the settings of a compaction, and each file as a batch.
    """
    lake, stream, fold, known = opened.lake, opened.stream, opened.fold, opened.trusted()
    rocksdb = run_settings(lake, stream)
    put_back_dead_letters(lake, stream.name, known.dead_letters)
    replace_checkpoint(opened)
    opened.refuse_other_checkpoint()
    if opened.row is not None:
        refuse_cut_off(lake, opened.generations, opened.bronze)
    if is_approval_needed():
        refuse_unapproved(opened, is_run=True)
    refuse_new_code(known, stream, opened.identity.code)
    refuse_unreadable_events(opened)
    start = plan_start(engine, opened)
    row = row_of_run(opened, start)  # first: with other settings the table does not fit either
    table = engine.product_table(lake, stream.name, opened.definition)
    checks = DataChecks(lake, stream, run, then=f"./stateful stream {stream.name}")
    checks.refuse_wrong(table)
    add_fields(lake, stream.source)
    check_bronze(lake.bronze(stream.source), fold)
    writer = BatchWriter(
        opened,
        row,
        run["run_id"],
        table=table,
        dead_letters=engine.dead_letters_table(lake, stream.name),
        checks=checks,
        memory_mb=memory_of(rocksdb),
    )
    is_first, seed = newest_begun(lake, opened.checkpoint) is None, start.seed
    if is_first and start.first_version is not None:
        append_keepalive(opened)  # the first batch, which takes the seed in, needs a row to read
    elif is_first and fold.output_mode == "update" and seed and seed.states is not None:
        # The table shows states also before their first event; an earlier attempt may have had others.
        rows = engine.table_rows(fold, [], seed.states)
        checks.admit(partial(table.judge, rows), "the initial state")
        table.replace(rows, writer.begin().as_json())
    query = LiveQuery(
        lake,
        stream,
        fold,
        checkpoint=opened.checkpoint,
        seed=seed,
        first_version=start.first_version,
        compacting=compacting,
        settings={**session_conf(rocksdb), **(COMPACTING if compacting else {})},
        is_small=is_small(opened),
    )
    measured = list[dict[str, Any]]()
    try:
        measured = engine.drain(query, writer)
    except Exception:
        if checks.stopped is not None:  # Spark's error around it is long
            raise checks.stopped from None
        raise
    finally:
        batches = writer.committed(newest_committed(lake, query.checkpoint), measured)
        run |= totals_of_run(batches)
        append_ops(lake, "batches", batches)
        found = findings_of_run(stream.name, batches)
        record_findings(lake, run["run_id"], stream.name, findings=found)
    opened = opened.after(writer.record)
    _record_position(opened, run)
    return opened


def row_of_run(opened: OpenStream, start: RunStart) -> GenerationRow:
    """The generation's row with what a run changes; SettingsError when its settings have changed."""
    stream, fold, row, code = opened.stream, opened.fold, opened.row, opened.identity.code
    settings, events = pinned_settings(stream, fold) | start.pins, event_ddl(fold)
    has_begun = opened.is_rebuilt or opened.record.batch_of(opened.generation) is not None
    if row is not None and has_begun:
        refuse_other_settings(row, settings)
        return with_code(row, code, events)
    return GenerationRow(
        stream=stream.name,
        generation=opened.generation,
        **settings,
        code=code,
        parts=code_parts(opened.declared),
        event_schema=events,
    )


def replace_checkpoint(opened: OpenStream) -> None:
    """Delete a checkpoint whose first batch is planned, but neither committed nor in the table."""
    lake, checkpoint = opened.lake, opened.checkpoint
    is_committed = newest_committed(lake, checkpoint) is not None
    if opened.row is None and newest_begun(lake, checkpoint) is not None and not is_committed:
        lake.filesystem.delete_dir(lake.path_in_filesystem(checkpoint))


def refuse_unreadable_events(opened: OpenStream) -> None:
    """Raise SettingsError, before any batch, when waiting events do not fit the event record any more."""
    if newest_committed(opened.lake, opened.checkpoint) is None:
        return
    if (pinned := opened.generations.pinned()["event_schema"]) != event_ddl(opened.fold):
        refuse_other_events(opened.fold, pa.schema(list(arrow_type(f"struct<{pinned}>"))))


def stay_in_log(opened: OpenStream) -> None:
    """Write a row to read before bronze's log is cut, or after a run that was cut off."""
    needed = needed_commit(opened.lake, opened.generations, opened.bronze)
    # Spark makes up for a lost batch without data once there is data: timeouts that are due wait for it.
    is_cut_off = opened.row is not None and not is_complete(opened.lake, opened.checkpoint)
    if is_cut_off or (needed is not None and needed.is_growing_old):
        append_keepalive(opened)


def append_keepalive(opened: OpenStream) -> None:
    """Write a row that changes nothing into bronze, waiting for the lease of an ingestion."""
    with hold_lease(opened.lake, f"ingest-{opened.source}", INGEST_PATIENCE):
        write_keepalive(opened.lake, source_named(opened.source))


def _record_position(opened: OpenStream, run: RunRecord) -> None:
    """Record how far the table is complete, and what waits; RowCountError when rows do not add up."""
    known = opened.trusted()
    until_us = None if known.own is None else known.own.until_us
    run["until"] = None if until_us is None else instant_of(until_us)
    if known.batch_of(opened.generation) is not None:
        run["rows_pending"] = known.totals["rows_pending"]
    try:
        check_rows_add_up(opened.lake, known, opened.generations.pinned())
    except RowCountError as error:
        found = FINDINGS["rows_do_not_add_up"].found(opened.name, str(error))
        record_findings(opened.lake, run["run_id"], opened.name, findings=[found])
        raise


def main() -> None:
    parser = job_parser(__doc__, "stream")
    parser.add_argument("--also", nargs="*", default=[], help="other streams that are due")
    args = parser.parse_args()
    others = [other for other in declared().streams if other.name in args.also]
    with stream_job(JOB, args) as (spark, lake, stream):
        engine = SparkEngine(spark)
        drain(engine, lake, stream, args.dag_run_id)
    # Each has the memory of one.
    make_ready = partial(close_state_stores, spark)
    drain_others(engine, lake, others, dag_run_id=args.dag_run_id, make_ready=make_ready)


if __name__ == "__main__":
    exit_with_main(main)
