"""Where the seconds of one `run_stream` went: by its own record, and by Spark's of its batches."""

import json
from datetime import datetime
from typing import Any

from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.settings import Stream

PARTS = (
    "launcher, JVM, imports, session",
    "tables and plan, until the first batch",
    "batches: planned",
    "batch with data: fetched, folded, written",
    "batches without data",
    "commits of the checkpoint",
    "exit",
)
COMMITS = ("walCommit", "commitOffsets", "commitBatch")


def parts_of(lake: Lake, stream: Stream, began: datetime, ended: datetime) -> dict[str, float]:
    """Seconds by part of the stream's newest run, whose process lived from `began` to `ended`."""
    runs = read_ops(lake, "runs", {"job": "run_stream", "subject": stream.name}).to_pylist()
    run = max(runs, key=lambda row: row["started_at"])
    rows = read_ops(lake, "batches", {"run_id": run["run_id"]}).to_pylist()
    batches = [json.loads(row["durations_ms"]) for row in rows]
    folded = [_seconds(b, "addBatch") for b in batches]
    data = max(folded)
    committed = sum(_seconds(batch, *COMMITS) for batch in batches)
    in_batches = sum(_seconds(batch, "triggerExecution") for batch in batches)
    in_run = (run["ended_at"] - run["started_at"]).total_seconds()
    seconds = (
        (run["started_at"] - began).total_seconds(),
        in_run - in_batches,
        in_batches - sum(folded) - committed,
        data,
        sum(folded) - data,
        committed,
        (ended - run["ended_at"]).total_seconds(),
    )
    return dict(zip(PARTS, seconds, strict=True))


def _seconds(durations: dict[str, Any], *names: str) -> float:
    return sum(durations.get(name, 0) for name in names) / 1000
