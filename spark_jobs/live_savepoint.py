"""The state that a live stream has come to, written down as a savepoint.

After a run that came to its end the state is exactly that of all folded events before `until`:
it is read through Spark's state reader, in one pass, and written as Delta rows.
"""

import logging
from datetime import datetime

from include.checkpoint.batches import last_batch, running_totals
from include.checkpoint.committed_batch import check_partitions, committed_batch
from include.checkpoint.offsets import newest_committed
from include.checkpoint.pin_generation import refuse_other_state
from include.checkpoint.position import BronzePosition, is_settled, read_position
from include.coverage.entries import read_entries
from include.coverage.judge import newest_own
from include.fold.admission import US_PER_MS, until_us
from include.fold.instants import instant_of
from include.lake.generations import (
    GenerationRow,
    read_generations,
)
from include.lake.paths import Lake, LakeError
from include.plans.stream_identity import stream_identity
from include.savepoints.bronze_pin import pin_bronze
from include.savepoints.choose_base import clean_savepoints
from include.savepoints.lineage import serving
from include.savepoints.manifest import is_due, savepoints_of
from include.savepoints.retention import expired, needed_ids, oldest_kept_us, spare_a_base
from include.settings import Stream
from include.stream_definition import load_definition, pinned_settings
from spark_jobs.engines.engine import Engine
from spark_jobs.savepoints import delete_savepoints, write_savepoint

log = logging.getLogger("job.savepoint")


def write_if_due(engine: Engine, lake: Lake, stream: Stream, run_id: str) -> None:
    """Write a savepoint when the stream's cadence says so. Under the stream's lease."""
    if (
        newest_committed(
            lake, lake.checkpoint(stream.name, read_generations(lake, stream.name).number)
        )
        is None
    ):
        return
    batch = committed_batch(lake, stream.name)
    if batch.watermark_ms is None or not is_settled(lake, batch.checkpoint):
        return  # the next run that comes to its end writes it
    until = until_us(batch.watermark_ms * US_PER_MS)
    if is_due(stream.savepoints, until, savepoints_of(lake, stream.name)):
        write_live_savepoint(engine, lake, stream, run_id, "live")
        delete_expired(engine, lake, stream)


def delete_expired(engine: Engine, lake: Lake, stream: Stream) -> None:
    """Delete the savepoints that the stream's rules no longer keep. Under the stream's lease."""
    known = savepoints_of(lake, stream.name)
    candidates = expired(known, stream.savepoints, needed_ids(lake, stream.name))
    if not candidates:
        return
    # Not of all that are kept: below an old one that a generation needs, it would be a base
    # for nothing.
    kept_from_us = oldest_kept_us(known, stream.savepoints)
    clean = clean_savepoints(
        candidates, stream_identity(lake, stream), pin_bronze(lake, stream.source)
    )
    going = spare_a_base(candidates, {savepoint.savepoint_id for savepoint in clean}, kept_from_us)
    if going:
        delete_savepoints(engine, lake, going)
        log.info("deleted %d savepoints of %s", len(going), stream.name)


def write_live_savepoint(
    engine: Engine, lake: Lake, stream: Stream, run_id: str, origin: str
) -> str:
    """Write the stream's state as a savepoint, whose id is returned. Under the stream's lease.

    Raises LakeError when the stream has settled nothing yet, or its last run was cut off.
    """
    batch = committed_batch(lake, stream.name)
    if batch.watermark_ms is None or not is_settled(lake, batch.checkpoint):
        raise LakeError(
            f"the last run of {stream.name} was cut off before all of its state was settled: run "
            "it again first"
        )
    pinned = read_generations(lake, stream.name).pinned(batch.generation)
    check_partitions(lake, batch, pinned["state_partitions"])
    fold = load_definition(stream).fold
    schema = pinned_settings(stream, fold)["state_schema"]
    refuse_other_state(lake, stream, batch.generation, schema)
    newest = last_batch(lake, stream.name, batch.generation)
    totals = running_totals(lake, stream.name, batch.generation, newest)
    position = read_position(lake, f"{batch.checkpoint}/offsets/{batch.batch_id}")
    states = engine.live_states(batch.checkpoint, fold, batch.batch_id)
    manifest = {
        "origin": origin,
        "generation": batch.generation,
        "run_id": run_id,
        "events": totals["total_folded"],
        "bronze_id": position.table_id,
        "bronze_version": position.version - 1,
        "bronze_ingested_at": _newest_read(lake, stream, position),
        "code": _code_of_all(lake, pinned),
        "state_schema": pinned["state_schema"],
    }
    until = until_us(batch.watermark_ms * US_PER_MS)
    savepoint_id = write_savepoint(engine, lake, states, fold, until, manifest)
    log.info("savepoint %s of %s", savepoint_id, stream.name)
    return savepoint_id


def _newest_read(lake: Lake, stream: Stream, position: BronzePosition) -> datetime:
    """`ingested_at` of the newest row that the stream has read."""
    return instant_of(pin_bronze(lake, stream.source, position.version - 1).ingested_at_us)


def _code_of_all(lake: Lake, pinned: GenerationRow) -> str | None:
    """The code of a generation's state; None when another has moved it on, too, be it that only
    the ledger still knows: no replay of either can say whether such a state is right."""
    own = newest_own(read_entries(lake, pinned["stream"]))
    codes = set(() if own is None else own.codes)
    if pinned["code_changed_at"] or not codes <= serving(pinned["code"] or ""):
        return None
    return str(pinned["code"])
