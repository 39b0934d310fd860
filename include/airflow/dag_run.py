"""What a Dag run of a stream is for, as its tasks see it."""

from typing import Any


def is_backfill(dag_run: Any) -> bool:
    """By its type: *All Runs* makes a backfill of a scheduled run, which keeps its run id."""
    return bool(dag_run.run_type == "backfill")
