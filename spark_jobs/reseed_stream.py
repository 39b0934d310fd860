"""Make a stream's state anew from a clean base and bronze, late rows included, and go on from it.

    spark-submit spark_jobs/reseed_stream.py --stream user_counts --lake /data/lake
        [--buckets 100] [--partitions 7] [--until 2026-01-05] [--recompute | --from-state]

The one operation that changes live: it takes late rows in (promote), changes buckets and state
partitions, follows a changed function (with --recompute) or a changed state (with --from-state,
by the mapping in the stream's file), replaces a checkpoint that is lost, or
goes back to an earlier instant. An intent row comes first, and the switch to the new generation
last, each in one commit; all between can be repeated. A run that finds an intent finishes it.
"""

import logging
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from include.care.why_failed import told_why
from include.coverage.ledger import distrust_error, enter, reconcile, write_look
from include.coverage.marks import mark_of
from include.coverage.rebuild import can_be_taken_back, take_back
from include.coverage.trust import has_begun
from include.data_checks import Check, DataCheckError, Verdict
from include.fold.admission import US_PER_MS, instant_of, micros_of
from include.fold.product_table import ensure_product
from include.job import PATIENCE, RunRecord, job_parser, recorded_run
from include.lake.generations import CURRENT, GenerationRow
from include.lake.lease import hold_lease
from include.lake.ops import append_ops, update_ops
from include.lake.paths import Lake, LakeError, open_lake
from include.lake.table_seal import NO_CHANGE
from include.plans.migrate_plan import MIGRATE
from include.plans.open_stream import OpenStream, open_stream
from include.plans.reseed_plan import (
    ReseedOptions,
    add_arguments,
    intent_row,
    options_of,
    plan_reseed,
    refuse_unreadable_table,
)
from include.registry import stream_named
from include.savepoints.bronze_pin import BronzePin, erased_version
from include.savepoints.choose_base import Base
from include.savepoints.manifest import same_code, savepoint_at
from include.settings import Stream
from spark_jobs.engines.data_checks import DataChecks
from spark_jobs.engines.engine import Engine, ProductTable
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, spark_session
from spark_jobs.live_savepoint import delete_expired
from spark_jobs.replay_bronze import (
    Outcome,
    Replay,
    coverage_of,
    interval_row,
    plan_with_sound_base,
    replace_rejected,
    replayed,
)

JOB = "reseed_stream"
GENERATION_KEY = ("stream", "generation")

log = logging.getLogger("job.reseed")


def reseed(
    engine: Engine,
    lake: Lake,
    stream: Stream,
    options: ReseedOptions,
    dag_run_id: str | None = None,
    then: str | None = None,
) -> None:
    """Reseed `stream` and record it. One that was cut off is overtaken: the ledger knows what
    it has replaced, and its savepoints serve this one. `then`: the command that goes on once a check
    has stopped it, and was mended, when that is no reseed of its own.

    Raises SettingsError or LakeError, before anything is written, when it cannot be done.
    """
    with (
        hold_lease(lake, f"stream-{stream.name}", PATIENCE),
        recorded_run(lake, JOB, stream.name, dag_run_id) as record,
    ):
        plan = plan_with_sound_base(
            engine,
            lake,
            record["run_id"],
            plan=lambda: plan_reseed(lake, stream, options),
        )
        log.info("%s", plan.text())
        opened = open_stream(lake, stream)
        # Both fail before anything is written.
        _checks(opened, record, then).refuse_wrong(_product_table(engine, opened))
        row = intent_row(opened, plan)
        append_ops(lake, "generations", [row], (f"{stream.name}/{row['generation']}", 0))
        opened = opened.again()
        write_look(lake, stream.name, opened.seen)
        _carry_out(engine, opened, row, record=record, then=then)


def finish_open_reseed(
    engine: Engine, lake: Lake, stream: Stream, dag_run_id: str | None = None
) -> bool:
    """Finish a reseed of `stream` that was cut off; whether there was one. Under its lease."""
    opened = open_stream(lake, stream)
    row = opened.generations.intent
    if row is None:
        return False
    refuse_unreadable_table(lake, stream.name)
    seen = opened.seen
    begun = has_begun(lake, stream.name, seen.entries, generation=row["generation"])
    if seen.distrust is not None and (row["base_savepoint"] is not None or begun):
        # It would leave what is before its base as it is now; or delete what live has added.
        raise distrust_error(lake, stream.name, seen.distrust)
    write_look(lake, stream.name, seen)
    log.info("finishing the reseed to generation %s of %s", row["generation"], stream.name)
    with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as record:
        _carry_out(engine, opened, row, record=record)
    return True


def _carry_out(
    engine: Engine,
    opened: OpenStream,
    row: GenerationRow,
    record: RunRecord,
    then: str | None = None,
) -> None:
    """Everything from the intent to the switch, as the intent's row has decided it."""
    began, lake = time.monotonic(), opened.lake
    replay = _replay(opened, row, record["run_id"])
    until_us, is_append = micros_of(row["until"]), replay.fold.output_mode == "append"
    # From the beginning: all rows, also what an initial state stood for under an earlier `as_of`.
    from_us = replay.base.until_us if replay.base.savepoint and is_append else None
    covered = coverage_of(
        replay, row["generation"], from_us, until_us, row["watermark_delay_ms"] * US_PER_MS
    )
    table, checks = _product_table(engine, opened), _checks(opened, record, then)
    checks.refuse_wrong(table)
    with replayed(engine, replay, until_us) as outcome:
        change = NO_CHANGE
        if not _has_replaced(opened, row["generation"]):
            _admit(opened, row["generation"], checks, table=table, outcome=outcome, from_us=from_us)
        if is_append:
            # Without an end: what live has emitted beyond `until` it will emit again.
            change = table.replace_range(outcome.outputs, from_us, None, mark_of(covered))
        else:
            table.replace_all(outcome.states, mark_of(covered))
        enter(lake, covered)
        # Once it is entered: until then the reseed can be given up, and from then on one that
        # overtakes it begins no later (`rejected_kept_us`). A repeat does this again.
        since_us = replay.base.until_us if replay.base.savepoint else None
        record |= replace_rejected(engine, replay, outcome.rejected, since_us, None)
        record |= {"until": row["until"], "rows_in": outcome.rows_read, "rows_out": change.after}
        start = None if from_us is None else instant_of(from_us)
        done = interval_row(
            replay, outcome, change, generation=row["generation"], start=start, until=row["until"]
        )
    done |= {"dag_run_id": record["dag_run_id"], "seconds": time.monotonic() - began}
    append_ops(lake, "intervals", [done])
    _switch(lake, row, outcome)
    opened = opened.again()
    reconcile(lake, opened.generations)
    delete_expired(opened)


def _checks(opened: OpenStream, record: RunRecord, then: str | None) -> DataChecks:
    again = then or f"./stateful reseed {opened.name} --apply"
    return DataChecks(opened.lake, opened.declared, record, then=again)


def _has_replaced(opened: OpenStream, generation: int) -> bool:
    """Whether the reseed to a generation has its rows in the table: it was cut off behind that."""
    entries = opened.seen.entries
    return any(one.kind == "reseed" and one.generation == generation for one in entries)


def _admit(
    opened: OpenStream,
    generation: int,
    checks: DataChecks,
    table: ProductTable,
    outcome: Outcome,
    from_us: int | None,
) -> None:
    """Ask the stream's checks. A reseed that they stop is taken back, if the state before it can go
    on: else each run would begin with it, and stop."""

    def judge(asked: Sequence[Check]) -> list[Verdict]:
        if opened.fold.output_mode == "append":
            return table.judge(outcome.outputs, asked, from_us)
        return table.judge_states(outcome.states, asked)

    try:
        checks.admit(judge, "the reseed", generation)
    except DataCheckError:
        if can_be_taken_back(opened.generations, opened.seen):
            take_back(opened.lake, opened.generations, opened.seen)
        raise


def _product_table(engine: Engine, opened: OpenStream) -> ProductTable:
    ensure_product(opened.lake.table(opened.name), opened.definition)
    return engine.product_table(opened.lake, opened.declared, opened.definition)


def _replay(opened: OpenStream, row: GenerationRow, run_id: str) -> Replay:
    lake, stream, identity = opened.lake, opened.declared, opened.identity
    if not same_code(identity.code, row["code"]):
        raise LakeError(
            f"a reseed of {stream.name} was begun with other code, settings or initial state than "
            "it has now: put those back, or begin anew",
            code="settings_changed",
            subject=stream.name,
            command=f"./stateful reseed {stream.name} --apply",
        )
    identity = replace(identity, code=row["code"])
    pin = BronzePin(
        lake.bronze(stream.source),
        row["bronze_id"],
        row["bronze_version"],
        ingested_at_us=micros_of(row["bronze_ingested_at"]),
        watermark_us=0,
        erased_version=erased_version(lake, stream.source, row["bronze_id"]),
    )
    base_us = None if row["base_until"] is None else micros_of(row["base_until"])
    base = Base(None, base_us, 0)
    if row["base_savepoint"] is not None:
        savepoint = savepoint_at(lake, stream.name, row["base_savepoint"])
        if savepoint is None:
            raise LakeError(
                f"savepoint {row['base_savepoint']}, with which the reseed of {stream.name} begins, "
                "is gone: put it back, or begin anew",
                code="unreadable_savepoint",
                subject=stream.name,
                command=f"./stateful reseed {stream.name} --apply",
            )
        base = Base(savepoint, base_us, savepoint.events, mapped=row["reseed"] == MIGRATE)
    wanted = replace(stream, buckets=row["buckets"], state_partitions=row["state_partitions"])
    return Replay(
        lake,
        wanted,
        opened.fold,
        identity=identity,
        pin=pin,
        base=base,
        run_id=run_id,
        origin="reseed",
    )


def _switch(lake: Lake, row: GenerationRow, outcome: Outcome) -> None:
    """The stream runs on the new generation from here on."""
    switched = {
        "stream": row["stream"],
        "generation": row["generation"],
        "status": CURRENT,
        "seed_savepoint": outcome.savepoint.savepoint_id,
        "seed_events": outcome.events,
        "switched_at": datetime.now(UTC),
    }
    update_ops(lake, "generations", GENERATION_KEY, [switched])
    log.info("%s runs on generation %s from here on", row["stream"], row["generation"])


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = job_parser(__doc__, "stream")
    add_arguments(parser)
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    stream, lake = stream_named(args.stream), open_lake(args.lake)
    options = options_of(args)
    engine = SparkEngine(spark_session(f"{JOB}-{stream.name}", lake))
    with told_why(lake, stream):
        reseed(engine, lake, stream, options, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
