"""The sources and streams behind others that the lake has anything of, in the order in which they are made anew."""

from collections.abc import Iterable

from include.lake.delta_log import is_there
from include.lake.errors import OF_SOURCE
from include.lake.paths import Lake
from include.registry import source_named, sources_behind, stream_named, streams_of
from include.settings import Source, Stream


def begun_behind(lake: Lake, source: str) -> list[Source]:
    """Return the sources that are made of one, each behind what it is made of, if they have anything."""
    return [source_named(name) for name in sources_behind(source) if _has_begun(lake, name)]


def streams_behind(lake: Lake, source: str) -> list[Stream]:
    """Return the streams of these sources."""
    return [stream for each in begun_behind(lake, source) for stream in streams_of(each.name)]


def begun(lake: Lake, streams: Iterable[str]) -> list[Stream]:
    """Return those of the streams whose source has anything."""
    return [each for each in map(stream_named, streams) if _has_begun(lake, each.source)]


def _has_begun(lake: Lake, source: str) -> bool:
    places = [f"{folder}/{source}" for folder in OF_SOURCE]
    places += [f"tables/{stream.name}" for stream in streams_of(source)]
    return any(is_there(lake, f"{lake.root}/{place}") for place in places)
