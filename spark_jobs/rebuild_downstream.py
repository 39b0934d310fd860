"""Make all anew that is behind a source's streams, where rows were to be forgotten: bronze, table and state."""

from collections.abc import Callable

from include.amend.behind import begun_behind
from include.ingest.ingest import ingest
from include.ingest.ingest_log import read_done
from include.ingest.source_connector import connector_of
from include.ingest.splits import ConnectorError
from include.job import nothing_running
from include.lake.delta_log import is_there
from include.lake.errors import OF_SOURCE
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.registry import streams_of
from include.settings import Source
from include.stream.manifest import keep_savepoints
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.rebuild_stream import rebuild


def recreate_behind(
    engine: SparkEngine,
    lake: Lake,
    source: str,
    then: str,
    is_wanted: Callable[[Source], bool] = lambda source: True,
) -> None:
    """Make each source behind `source` anew, and rebuild its streams from the beginning.

    Whoever was cut off begins with all of them again: `then` is the command.
    """
    for each in begun_behind(lake, source):
        if is_wanted(each):
            _recreate(engine, lake, each, then)


def waits_for_parent(lake: Lake, source: Source) -> bool:
    """True if a source has rows behind what its parent is complete until, as after a watermark was set back; or
    is begun anew, and a stream of it is not."""
    if any(open_stream(lake, stream).mismatch for stream in streams_of(source.name)):
        return True
    try:
        lag = connector_of(lake, source).lag(read_done(lake, source.name))
    except ConnectorError:  # of an input that was made anew
        return True
    return lag.held is not None


def _recreate(engine: SparkEngine, lake: Lake, source: Source, then: str) -> None:
    streams = list(streams_of(source.name))
    with nothing_running(lake, [source.name], streams):
        for folder in OF_SOURCE:  # the log last: without it all is ingested again
            if is_there(lake, path := f"{lake.root}/{folder}/{source.name}"):
                lake.delete(path)
        for stream in streams:
            keep_savepoints(lake, stream.name, [])
    with hold_lease(lake, f"ingest-{source.name}"):
        ingest(lake, source)
    for stream in streams:
        if open_stream(lake, stream).row is not None:
            rebuild(engine, lake, stream, RebuildOptions(full_refresh=True), then=then)
