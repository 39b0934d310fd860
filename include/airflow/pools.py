"""The Airflow pools: one slot for each source, and one for each stream.

A pool keeps a backfill and a scheduled run apart, which `max_active_runs` does not, and
keeps the streams that share a source from ingesting it at the same time. Nobody makes them:
`plugins/stream_pools.py` does, when a Dag run first needs one.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Not at run time: the scheduler imports this, and its tasks, which it forks, would keep the
    # settings as they were then.
    from include.settings import Stream

OURS = re.compile(r"(source|stream)_[a-z][a-z0-9_]*")


def source_pool(stream: "Stream") -> str:
    """The pool of the task that ingests the stream's source."""
    return f"source_{stream.source}"


def stream_pool(stream: "Stream") -> str:
    """The pool of all other tasks of the stream."""
    return f"stream_{stream.name}"


def is_ours(pool: str) -> bool:
    """Whether it is named as the pools of streams and sources are."""
    return OURS.fullmatch(pool) is not None
