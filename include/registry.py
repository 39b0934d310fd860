"""The streams and sources that the files of `include/streams`, or of the folder STREAMS, declare.

`<name>.py` declares the stream `<name>` by its STREAM. A file without one is imported by others.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pkgutil import iter_modules
from types import ModuleType
from typing import NamedTuple

import include.streams
from include.connectors import DeltaTable, refuse_own_table
from include.fold.records import DefinitionError
from include.lake.errors import SettingsError
from include.settings import AS_SOURCE, Source, Stream, default_lake
from include.stream_definition import check_stream, source_of_inputs, source_of_outputs
from include.streams import sources
from include.text_table import did_you_mean


def stream_names() -> tuple[str, ...]:
    """Return the names of all streams, sorted; also of files that cannot be imported."""
    return tuple(sorted(name for name in _files() if _declares(name)))


def all_streams() -> tuple[Stream, ...]:
    """Return all streams. Raises SettingsError for the first file that is wrong."""
    return tuple(_stream(name) for name in stream_names())


class Declared(NamedTuple):
    """The streams whose file is right, and a message for each other file."""

    streams: list[Stream]
    wrong: list[str]


def declared() -> Declared:
    """Return the streams for Dags and pages, where a wrong file must not stop the others."""
    found = Declared([], [])
    for name in stream_names():
        try:
            found.streams.append(_stream(name))
        except SettingsError as error:
            found.wrong.append(str(error))
    wrong = (each for each in map(_sound, source_names()) if isinstance(each, str))
    found.wrong.extend(each for each in wrong if each not in found.wrong)
    return found


def stream_named(name: str) -> Stream:
    """Return the stream of that name. Raises SettingsError for an unknown name or a wrong file."""
    if name not in _files():
        raise SettingsError(
            unknown("stream", name, stream_names()), code="unknown_stream", subject=name
        )
    return _stream(name)


def _stream(name: str) -> Stream:
    module = _module(name)
    declared = getattr(module, "STREAM", None)
    file = f"{include.streams.FOLDER}/{name}.py"
    if not isinstance(declared, Stream):
        raise SettingsError(
            f"{file} must declare STREAM = Stream(...); see the README", subject=file
        )
    _refuse_cycle(name)
    title = declared.title or (module.__doc__ or name).splitlines()[0]
    source = source_named(declared.source)
    stream = replace(declared, name=name, title=title)
    if stream.deduplicate == AS_SOURCE and source.deduplicate is not None:
        stream = replace(stream, deduplicate=source.deduplicate)
    check_stream(stream, source)
    return stream


def source_named(name: str) -> Source:
    """Return the source of that name. Raises SettingsError for a name that none or several have."""
    found = [source for source in sources.SOURCES if source.name == name]
    if len(found) > 1:
        raise SettingsError(
            f"{include.streams.FOLDER}/sources.py has {len(found)} sources {name!r}", subject=name
        )
    if not found:
        raise SettingsError(
            unknown("source", name, sorted(source_names())), code="unknown_source", subject=name
        )
    source = found[0]
    if isinstance(source.connector, DeltaTable):
        refuse_own_table(name, source.connector.uri, default_lake())
    return _with_columns(source)


def _with_columns(source: Source) -> Source:
    """Return a source; a derived one with the columns of what it is made of as its fields."""
    if source.inputs:
        if source.name in sources_before(source.name):
            said = f"source {source.name} is an input of its own"
            raise SettingsError(said, subject=source.name)
        return source_of_inputs(source, [*map(source_named, source.inputs)])
    if source.parent is None:
        return source
    if source.parent not in _files():
        said = f"source {source.name}: {unknown('stream', source.parent, stream_names())}"
        raise SettingsError(said, code="unknown_stream", subject=source.parent)
    return source_of_outputs(source, stream_named(source.parent))


def all_sources() -> tuple[Source, ...]:
    """Return all sources, in the order of `sources.py`; without wrong ones of tables: `declared` says why."""
    return tuple(found for found in map(_sound, source_names()) if not isinstance(found, str))


def _sound(name: str) -> Source | str:
    """Return a source; of a wrong one of a table, why: it must not stop the others."""
    try:
        return source_named(name)
    except SettingsError as error:
        if any(s.name == name and s.connector is None for s in sources.SOURCES):
            raise
        return str(error)


def source_names() -> list[str]:
    """Return the names of all sources, in the order of `sources.py`."""
    return [source.name for source in sources.SOURCES]


def streams_of(source: str) -> Iterator[Stream]:
    """Return the streams that read a source."""
    return (stream for stream in all_streams() if stream.source == source)


def _declared(source: str) -> Source | None:
    return next((each for each in sources.SOURCES if each.name == source), None)


def _read_by(stream: str | None) -> list[str]:
    """Return the source that a stream reads, as declared; of a wrong file none."""
    try:
        declared = getattr(_module(stream), "STREAM", None) if stream in _files() else None
    except SettingsError:
        return []
    return [declared.source] if isinstance(declared, Stream) else []


def _before(of: Callable[[str], Iterable[str]], name: str) -> tuple[str, ...]:
    """Return what is before a name, the nearest first; one that is in a cycle is among its own."""
    found, waiting = list[str](), [*of(name)]
    while waiting:
        if (each := waiting.pop(0)) not in found:
            found.append(each)
            waiting += of(each)
    return tuple(found)


def _made_of(source: str) -> list[str]:
    """Return its inputs, or the source of the stream whose table it is of, as declared."""
    declared = _declared(source)
    return [] if declared is None else [*declared.inputs, *_read_by(declared.parent)]


def sources_before(source: str) -> tuple[str, ...]:
    """Return the sources that one is made of, also through tables of streams."""
    return _before(_made_of, source)


def sources_behind(source: str) -> list[str]:
    """Return the sources that are made of one, each behind all that it is made of."""
    behind = (name for name in source_names() if source in sources_before(name))
    return in_order(behind, sources_before)


def inputs_first(source: Source) -> list[Source]:
    """Return a source behind those that it merges: so they are ingested."""
    before = [each for name in source.inputs for each in inputs_first(source_named(name))]
    return [*{each.name: each for each in before}.values(), source]


def parents_of(stream: str) -> tuple[str, ...]:
    """Return the streams whose tables a stream reads, also merged ones, as declared."""
    found, names = list[str](), _read_by(stream)
    for declared in map(_declared, names):
        if declared is not None:
            names += [name for name in declared.inputs if name not in names]
            found += [declared.parent] if declared.parent else []
    return tuple(dict.fromkeys(found))


def ancestors_of(stream: str) -> tuple[str, ...]:
    """Return the streams before a stream, the nearest first; one that is in a cycle is among its own."""
    return _before(parents_of, stream)


def descendants_of(stream: str) -> tuple[str, ...]:
    """Return the streams behind a stream's table, each behind all that it reads."""
    return tuple(in_order(name for name in stream_names() if stream in ancestors_of(name)))


def in_order(
    names: Iterable[str], before: Callable[[str], Sequence[str]] = ancestors_of
) -> list[str]:
    """Return the streams, each behind all that it reads, or so other names."""
    return sorted(names, key=lambda name: (len(before(name)), name))


def _refuse_cycle(stream: str) -> None:
    for name in (stream, *ancestors_of(stream)):
        if name in (before := ancestors_of(name)):
            said = f"stream {name} reads a table that is made of its own: {' of '.join(before)}"
            raise SettingsError(said, subject=name)


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown name: the known ones, and the one that may be meant."""
    return f"unknown {kind} {name!r}: known are {', '.join(known)}{did_you_mean(name, known)}"


def _files() -> set[str]:
    return {found.name for found in iter_modules(include.streams.__path__)} - {"sources", "notify"}


def _declares(name: str) -> bool:
    try:
        return hasattr(_module(name), "STREAM")
    except SettingsError:
        return True


def _module(name: str) -> ModuleType:
    file = f"{include.streams.FOLDER}/{name}.py"
    try:
        return importlib.import_module(f"include.streams.{name}")
    # A user's file may raise anything.
    except (SettingsError, DefinitionError) as error:
        said = f"{file}: {error.message}"
        raise SettingsError(said, code=error.code, subject=error.subject) from error
    except Exception as error:
        kind = type(error).__name__
        raise SettingsError(f"{file}: {kind}: {error}", subject=file) from error
