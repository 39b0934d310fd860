"""The Airflow pools: one slot for each source, and one for each stream.

A pool keeps a backfill and a scheduled run apart, which `max_active_runs` does not, and
keeps the streams that share a source from ingesting it at the same time.
"""

from collections.abc import Iterable

from include.settings import Stream


def source_pool(stream: Stream) -> str:
    """The pool of the task that ingests the stream's source."""
    return f"source_{stream.source}"


def stream_pool(stream: Stream) -> str:
    """The pool of all other tasks of the stream."""
    return f"stream_{stream.name}"


def pools(streams: Iterable[Stream]) -> list[str]:
    """All pools that the Dags of `streams` use; each has one slot."""
    return sorted({pool(stream) for stream in streams for pool in (source_pool, stream_pool)})
