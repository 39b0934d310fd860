"""Erase a key of a source from landing, bronze, quarantine, tables, states, savepoints, records.

    ERASE_KEY=alice spark-submit spark_jobs/erase_key.py --name user_counts --lake /data/lake

The key comes by the environment, as arguments are written to logs. From the note in the ingest log
on, ingestion and the source's streams refuse to run. What is made of their tables is made anew. Killed anywhere and started again with the same
key, the job goes on where it was.
"""

import logging
import os
from argparse import ArgumentParser
from dataclasses import replace

from include.amend.behind import begun_behind, streams_behind
from include.amend.erase_rows import (
    ERASED_KEY,
    ErasedKey,
    erase_in_ops,
    erase_rows,
    erased_key,
    forget_history,
)
from include.amend.plans import ErasePlan, plan_erasure
from include.ingest.amendments import Amendment, amended_streams, begin_erasure, note, note_done
from include.ingest.ingest import ingest, write_keepalive
from include.ingest.ingest_log import Ingestion
from include.job import PATIENCE, nothing_running, recorded_run
from include.lake.delta_log import delta_table
from include.lake.errors import SettingsError
from include.lake.lease import hold_lease
from include.lake.ops import SCHEMAS
from include.lake.paths import Lake, open_lake
from include.maintain.table_maintenance import EVER, delete_generations
from include.registry import all_streams, source_names, streams_of
from include.stream.manifest import keep_savepoints
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.job import exit_with_main, spark_session
from spark_jobs.rebuild_downstream import recreate_behind
from spark_jobs.rebuild_stream import rebuild_amended

JOB = "erase_key"

log = logging.getLogger("job.erase_key")


def erase(engine: SparkEngine, lake: Lake, key: ErasedKey) -> None:
    """Erase a key, or finish an erasure of it that was begun."""
    source = key.source.name
    with hold_lease(lake, f"erase-{source}", PATIENCE), recorded_run(lake, JOB, source, None):
        erasure = _erase_rows(lake, key)
        options, then = RebuildOptions(full_refresh=True), f"./stateful erase {source} KEY --apply"
        rebuild_amended(engine, lake, erasure, options, then=then)
        recreate_behind(engine, lake, source, then)
        with nothing_running(lake, source_names(), all_streams()):
            _delete_history(lake, key, erasure)
        log.info("a key of %s is erased: amendment %d of its ingest log", source, erasure.number)


def _erase_rows(lake: Lake, key: ErasedKey) -> Amendment:
    """Erase the rows from landing, quarantine and bronze, and record the erasure."""
    source = key.source.name
    with nothing_running(lake, [source], streams_of(source)):
        if lake.is_delta_table(lake.ingest_log(source)):
            Ingestion(lake, key.source).finish()
        plan = plan_erasure(lake, key)
        log.info("%s", plan.text())
        erasure = plan.begun or begin_erasure(lake, key.source, key.texts, **plan.counts)
        if erasure.is_amended and not (plan.found.rows or plan.found.refused):
            return erasure
        if erasure.is_amended:  # an older copy of bronze has brought the rows back
            note(lake, key.source, erasure, amended=None)
        return _erase_all_of(lake, plan, erasure)


def _erase_all_of(lake: Lake, plan: ErasePlan, erasure: Amendment) -> Amendment:
    key, source = plan.key, plan.key.source.name
    streams = [stream.name for stream in streams_of(source)]
    if plan.found.rows:
        # The source watermark stays, also when the newest rows are those of the key.
        write_keepalive(lake, key.source)
    erase_in_ops(lake, [source, *streams])
    for stream in streams:
        # By its count of rows one with the key may be valid for a rebuild that is started meanwhile.
        keep_savepoints(lake, stream, [])
    erase_rows(lake, key, plan.found)
    _forget(lake, lake.bronze(source), lake.quarantine(source))
    amended = delta_table(lake.bronze(source)).version()
    note(lake, key.source, erasure, amended=amended)
    return replace(erasure, amended=amended)


def _delete_history(lake: Lake, key: ErasedKey, erasure: Amendment) -> None:
    """Delete the history of all tables that may have had the key, and then note that it is done."""
    source, behind = key.source.name, streams_behind(lake, key.source.name)
    streams = [stream.name for stream in (*streams_of(source), *behind)]
    for stream in (*(stream for stream, _ in amended_streams(lake, source)), *behind):
        delete_generations(lake, stream, EVER)
    _forget(lake, *map(lake.table, streams), *map(lake.dead_letters, streams))
    erase_in_ops(lake, [source, *streams, *(stream.source for stream in behind)])
    _forget(lake, *map(lake.ops, SCHEMAS), is_alone=False)
    # They know their parents' tables by commits that are gone.
    for each in begun_behind(lake, source):
        ingest(lake, each)
    note_done(lake, key.source, erasure)


def _forget(lake: Lake, *tables: str, is_alone: bool = True) -> None:
    for path in filter(lake.is_delta_table, tables):
        forget_history(lake, path, is_alone)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--name", required=True, help="a stream or a source in include/streams")
    parser.add_argument("--lake", required=True, help="the lake's folder or URI")
    args = parser.parse_args()
    if (text := os.environ.get(ERASED_KEY)) is None:
        said = f"{ERASED_KEY} is not set: it has the key that is to be erased"
        raise SettingsError(said, subject=ERASED_KEY)
    key, lake = erased_key(args.name, text), open_lake(args.lake)
    erase(SparkEngine(spark_session(f"{JOB}-{key.source.name}")), lake, key)


if __name__ == "__main__":
    exit_with_main(main)
