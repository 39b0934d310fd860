"""Make all anew that is behind a source's streams, where rows were to be forgotten: bronze, table and state."""

from collections.abc import Callable, Iterator

from include.ingest.ingest import ingest
from include.ingest.ingest_log import read_done
from include.ingest.stream_table import StreamTableConnector
from include.job import nothing_running
from include.lake.delta_log import is_there
from include.lake.errors import OF_SOURCE
from include.lake.lease import hold_lease
from include.lake.paths import Lake
from include.registry import descendants_of, source_named, stream_named, streams_of
from include.settings import Source, Stream
from include.stream.manifest import keep_savepoints
from include.stream.open_stream import open_stream
from include.stream.rebuild_plan import RebuildOptions
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.rebuild_stream import rebuild


def sources_behind(lake: Lake, source: str) -> Iterator[Source]:
    """Yield the sources of tables that are made of a source's, each behind its own parent's, if they have anything."""
    names = [name for stream in streams_of(source) for name in descendants_of(stream.name)]
    for name in dict.fromkeys(stream_named(name).source for name in names):
        places = [f"{folder}/{name}" for folder in OF_SOURCE]
        places += [f"tables/{stream.name}" for stream in streams_of(name)]
        if any(is_there(lake, f"{lake.root}/{place}") for place in places):
            yield source_named(name)


def streams_behind(lake: Lake, source: str) -> list[Stream]:
    """Return the streams of these sources."""
    return [stream for each in sources_behind(lake, source) for stream in streams_of(each.name)]


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
    for each in sources_behind(lake, source):
        if is_wanted(each):
            _recreate(engine, lake, each, then)


def waits_for_parent(lake: Lake, source: Source) -> bool:
    """True if a source has rows behind what its parent is complete until, as after a watermark was set back; or
    is begun anew, and a stream of it is not."""
    assert source.parent is not None
    if any(open_stream(lake, stream).mismatch for stream in streams_of(source.name)):
        return True
    connector = StreamTableConnector(lake, source, source.parent)
    return connector.held(read_done(lake, source.name)) is not None


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
