"""Make a stream's state anew from a clean base and bronze, late rows included, and go on from it.

    spark-submit spark_jobs/reseed_stream.py --stream user_counts --lake /data/lake
        [--buckets 100] [--partitions 7] [--until 2026-01-05] [--recompute | --from-state]

The one operation that changes live: it takes late rows in (promote), changes buckets and state
partitions, follows a changed function (with --recompute) or a changed state (with --from-state,
by the mapping in the stream's file), replaces a checkpoint that is lost, or
goes back to an earlier instant. The commit that replaces the table's rows is the switch to the new
generation: until then readers see the old table, and the stream goes on as before.
"""

import logging
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from include.fold.admission import US_PER_MS, instant_of
from include.job import PATIENCE, RunRecord, job_parser, recorded_run
from include.lake.generations import GenerationRow
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.lake.stream_result import dead_letters_number, put_back_dead_letters
from include.plans.open_stream import OpenStream, open_stream
from include.plans.reseed_plan import (
    ReseedOptions,
    ReseedPlan,
    add_arguments,
    new_row,
    options_of,
    plan_reseed,
)
from include.settings import Stream
from spark_jobs.engines.data_checks import DataChecks
from spark_jobs.engines.engine import Engine
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, stream_job
from spark_jobs.live_savepoint import delete_expired
from spark_jobs.replay_bronze import (
    Replay,
    coverage_of,
    plan_with_sound_base,
    replace_dead_letters,
    replaced_row,
    replayed,
)
from spark_jobs.tables.product import Product

JOB = "reseed_stream"

log = logging.getLogger("job.reseed")


def reseed(
    engine: Engine,
    lake: Lake,
    stream: Stream,
    options: ReseedOptions,
    dag_run_id: str | None = None,
    then: str | None = None,
) -> None:
    """Reseed `stream` and record it. Killed anywhere before the commit that replaces the table's rows it
    has changed nothing but savepoints, which serve the next one. `then`: the command that goes on once a
    check has stopped it, and was mended, when that is no reseed of its own.

    Raises SettingsError or LakeError, before anything is written, when it cannot be done.
    """
    with (
        hold_lease(lake, f"stream-{stream.name}", PATIENCE),
        recorded_run(lake, JOB, stream.name, dag_run_id) as record,
    ):
        plan = plan_with_sound_base(
            lake,
            record["run_id"],
            plan=lambda: plan_reseed(lake, stream, options),
        )
        log.info("%s", plan.text())
        opened = open_stream(lake, stream)
        if opened.distrust is None:
            put_back_dead_letters(lake, stream.name, opened.record.dead_letters)
        checks = DataChecks(
            lake, opened.declared, record, then=then or f"./stateful reseed {stream.name} --apply"
        )
        table = engine.product_table(lake, stream.name, opened.definition, is_rebuilt=True)
        checks.refuse_wrong(table)  # before anything is written
        _carry_out(engine, opened, plan, table=table, checks=checks, record=record)
        delete_expired(opened.again())


def _carry_out(
    engine: Engine,
    opened: OpenStream,
    plan: ReseedPlan,
    table: Product,
    checks: DataChecks,
    record: RunRecord,
) -> None:
    """Replay, and replace dead letters, then the table's: that commit is the switch."""
    lake, row = opened.lake, new_row(opened, plan)
    replay = Replay(
        lake,
        replace(opened.declared, buckets=plan.buckets, state_partitions=plan.partitions),
        opened.fold,
        identity=replace(plan.identity, code=row["code"]),
        pin=plan.pin,
        base=plan.base,
        run_id=record["run_id"],
        origin="reseed",
    )
    covered = coverage_of(
        replay,
        row["generation"],
        plan.from_us,
        plan.until_us,
        row["watermark_delay_ms"] * US_PER_MS,
    )
    with replayed(engine, replay, plan.until_us) as outcome:
        rows = engine.published(replay.fold, outcome.outputs, outcome.states)
        judge = partial(table.judge, rows, from_us=plan.from_us)
        checks.admit(judge, "the reseed", row["generation"])
        since_us = replay.base.until_us if replay.base.savepoint else None
        record |= replace_dead_letters(engine, replay, outcome.dead_letters, since_us, None)
        seeded = {
            "seed_savepoint": outcome.savepoint.savepoint_id,
            "seed_events": outcome.events,
            "switched_at": datetime.now(UTC),
        }
        made = replace(
            opened.record,
            row=GenerationRow({**row, **seeded}),
            dead_letters=dead_letters_number(lake, opened.name),
        ).with_entry(covered)
        # Without an end: what live has emitted beyond `until` it will emit again.
        is_made_anew = opened.distrust is not None
        change = table.replace(rows, made.as_json(), plan.from_us, is_made_anew=is_made_anew)
        log.info("%s runs on generation %s from here on", opened.name, row["generation"])
        until = instant_of(plan.until_us)
        start = None if plan.from_us is None else instant_of(plan.from_us)
        record |= replaced_row(
            replay, outcome, change, generation=row["generation"], start=start, until=until
        )


def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    parser = job_parser(__doc__, "stream")
    add_arguments(parser)
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    with stream_job(JOB, args) as (spark, lake, stream):
        reseed(SparkEngine(spark), lake, stream, options_of(args), args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
