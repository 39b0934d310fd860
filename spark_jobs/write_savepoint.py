"""Write a savepoint of a live stream's state: by its cadence, or as a job.

    spark-submit spark_jobs/write_savepoint.py --stream user_counts --lake /data/lake

After a complete run the state is exactly that of all folded events before an instant. A compaction
makes older states unreadable: a savepoint stays.
"""

import logging
from typing import Any

from include.fold.admission import MICROSECOND, US_PER_MS, instant_of, until_us
from include.fold.definition import KeyedFold, state_rows_ddl
from include.job import PATIENCE, job_parser, recorded_run
from include.lake.errors import LakeError
from include.lake.generations import GenerationRow
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.settings import SavepointRules, Stream
from include.stream.bronze import newest_bronze
from include.stream.checkpoint import (
    CommittedBatch,
    check_partitions,
    committed_batch,
    is_complete,
    newest_committed,
    read_position,
)
from include.stream.manifest import (
    Savepoint,
    keep_savepoints,
    newest_savepoint,
    retained_by,
    savepoints_of,
    write_manifest,
)
from include.stream.open_stream import OpenStream, open_stream
from include.stream.record import StreamRecord, refuse_other_settings, totals_of
from spark_jobs.engines.engine import Rows
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, stream_job

JOB = "write_savepoint"

log = logging.getLogger("job.savepoint")


def write_savepoint(
    engine: SparkEngine, lake: Lake, states: Rows, fold: KeyedFold, until_us: int, **known: Any
) -> Savepoint:
    """Write `states` as a savepoint, under the stream's lease; `known`: other fields of the manifest."""
    stream = fold.stream
    keep_savepoints(lake, stream, savepoints_of(lake, stream))
    savepoint_id = f"{instant_of(until_us):%Y%m%dT%H%M%S%f}-{known['run_id'][:8]}"
    folder = lake.savepoint(stream, savepoint_id)
    staged = engine.stage_states(states, fold, folder)
    return write_manifest(
        lake, staged, savepoint_id=savepoint_id, stream=stream, until_us=until_us, **known
    )


def write_if_due(engine: SparkEngine, opened: OpenStream, run_id: str) -> None:
    """Write a savepoint when the stream's cadence says so. Under the stream's lease."""
    lake, rules = opened.lake, opened.stream.savepoints
    if newest_committed(lake, opened.checkpoint) is None:
        return
    until = _complete_until(lake, committed_batch(lake, opened.generations))
    if until is None:
        return  # the next complete run writes it
    if is_due(rules, until, newest_savepoint(lake, opened.name)):
        write_live_savepoint(engine, opened, run_id, kind="live")
        delete_expired(opened)


def is_due(rules: SavepointRules, until_us: int, newest: Savepoint | None) -> bool:
    """True if `until_us` is past a multiple of the cadence since the newest savepoint."""
    if rules.cadence is None:
        return False
    cadence_us = rules.cadence // MICROSECOND
    return newest is None or until_us // cadence_us > newest.until_us // cadence_us


def delete_expired(opened: OpenStream) -> None:
    """Delete the savepoints that the stream's rules no longer keep. Under the stream's lease."""
    known, rules = savepoints_of(opened.lake, opened.name), opened.stream.savepoints
    keep_savepoints(opened.lake, opened.name, retained_by(known, rules, opened.row))


def write_live_savepoint(
    engine: SparkEngine, opened: OpenStream, run_id: str, kind: str
) -> Savepoint:
    """Write the stream's state as a savepoint. Under the stream's lease."""
    lake, fold = opened.lake, opened.fold
    batch = committed_batch(lake, opened.generations)
    until, known = _complete_until(lake, batch), opened.record
    if until is None or known.batch_of(batch.generation) not in (batch.batch_id, None):
        raise LakeError(
            f"the last run of {opened.name} was cut off before all of its state was complete: run "
            "it again first",
            code="nothing_there",
            subject=opened.name,
            command=f"./stateful stream {opened.name}",
        )
    pinned = opened.generations.pinned()
    check_partitions(lake, batch, pinned["state_partitions"])
    refuse_other_settings(pinned, {"state_schema": state_rows_ddl(fold)})
    totals = totals_of(known, pinned)
    position = read_position(lake, f"{batch.checkpoint}/offsets/{batch.batch_id}")
    read = newest_bronze(lake, opened.source, position.version - 1)
    savepoint = write_savepoint(
        engine,
        lake,
        engine.live_states(batch.checkpoint, fold, batch.batch_id),
        fold,
        until,
        kind=kind,
        run_id=run_id,
        events=totals["total_folded"] + totals["total_duplicate"],
        bronze_id=read.table_id,
        bronze_ingested_at_us=read.ingested_at_us,
        code=_code_of_all(known, pinned),
        state_schema=pinned["state_schema"],
    )
    log.info("savepoint %s of %s", savepoint.savepoint_id, opened.name)
    return savepoint


def _complete_until(lake: Lake, batch: CommittedBatch) -> int | None:
    """The instant before which every bucket is complete; None after a run that was cut off."""
    if batch.watermark_ms is None or not is_complete(lake, batch.checkpoint):
        return None
    return until_us(batch.watermark_ms * US_PER_MS)


def _code_of_all(known: StreamRecord, pinned: GenerationRow) -> str | None:
    """The code of a generation's state; None when it comes of several."""
    codes = set(() if known.own is None else known.own.codes)
    if pinned["code_changed_at_us"] or not codes <= {pinned["code"]}:
        return None
    return pinned["code"]  # type: ignore[no-any-return]


def savepoint(
    engine: SparkEngine, lake: Lake, stream: Stream, dag_run_id: str | None = None
) -> None:
    """Write the state of `stream` as a savepoint, and record the run."""
    with hold_lease(lake, f"stream-{stream.name}", PATIENCE):
        opened = open_stream(lake, stream)
        opened.refuse_run()
        with recorded_run(lake, JOB, stream.name, dag_run_id=dag_run_id) as record:
            opened.refuse_other_checkpoint()
            write_live_savepoint(engine, opened, record["run_id"], kind="on_demand")


def main() -> None:
    args = job_parser(__doc__, "stream").parse_args()
    with stream_job(JOB, args) as (spark, lake, stream):
        savepoint(SparkEngine(spark), lake, stream, args.dag_run_id)


if __name__ == "__main__":
    exit_with_main(main)
