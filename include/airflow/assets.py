"""Assets, pools and documentation of a stream's Dag."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import Asset

import include.streams
from include.connectors import Merged, StreamTable
from include.fold.definition import Definition
from include.registry import inputs_first
from include.settings import Source, Stream
from include.stream_definition import load_definition
from include.text_table import markdown_cell


def table_asset(stream: Stream, lake: str) -> Asset:
    """The Asset of a stream's table; downstream Dags are scheduled on it."""
    return Asset(name=stream.name, uri=as_uri(f"{lake}/tables/{stream.name}"))


def bronze_asset(source: Source, lake: str) -> Asset:
    return Asset(name=f"bronze/{source.name}", uri=as_uri(f"{lake}/bronze/{source.name}"))


def ops_asset(lake: str) -> Asset:
    """The Asset with which `table_maintenance` stores its alerts."""
    return Asset(name="ops", uri=as_uri(f"{lake}/ops"))


def source_assets(source: Source, lake: str) -> list[Asset]:
    """The Assets of a source's files, topic, table or inputs; a Dag that fills one may have it as an outlet."""
    if isinstance(source.connector, Merged):
        return [bronze_asset(each, lake) for each in inputs_first(source)[:-1]]
    if isinstance(source.connector, StreamTable):  # one URI is that of one Asset
        parent = source.connector.stream
        return [Asset(name=parent, uri=as_uri(f"{lake}/tables/{parent}"))]
    place = f"{lake}/landing/{source.name}" if source.connector is None else source.connector.uri
    return [Asset(name=f"source/{source.name}", uri=as_uri(place))]


def as_uri(path: str) -> str:
    """A local path as a URI, and any other as it is."""
    return path if "://" in path else Path(path).absolute().as_uri()


def source_pool(source: str) -> str:
    """The pool of the tasks that ingest a source."""
    return f"source_{source}"


def stream_pool(stream: Stream) -> str:
    """The pool of all other tasks of the stream."""
    return f"stream_{stream.name}"


def is_ours(pool: str) -> bool:
    """True if the name is that of a stream's or source's pool."""
    return pool.startswith(("source_", "stream_"))


RED = (
    "**When it is red**: the log of the red task says what was wrong and what to do; the tab *State* "
    "has the open findings and the table's columns. Clearing a task is always safe. More is at the "
    "end of this page."
)


def stream_doc(stream: Stream, common: str) -> str:
    """Markdown for the Dag: what `stream` computes, its facts, then `common`."""
    definition = load_definition(stream)
    facts = "\n".join(
        f"| {name} | {markdown_cell(value)} |" for name, value in _facts(stream, definition)
    )
    return "\n\n".join(
        [
            f"**{stream.title}**",
            *_computes(stream, definition),
            f"| | |\n|---|---|\n{facts}",
            RED,
            "---",
            common,
        ]
    )


def _computes(stream: Stream, definition: Definition) -> Iterator[str]:
    """The docstrings of the stream's file, without its title, and of its function."""
    module = sys.modules.get(f"include.streams.{stream.name}")
    if more := inspect.cleandoc((module and module.__doc__) or "").partition("\n")[2].strip():
        yield more
    function = definition.fold.function
    if said := inspect.getdoc(function):
        yield f"`{getattr(function, '__name__', 'function')}`: {said}"


def _facts(stream: Stream, definition: Definition) -> Iterator[tuple[str, str]]:
    fold = definition.fold
    yield "file", f"`{include.streams.FOLDER}/{stream.name}.py`"
    yield "source", f"`bronze/{stream.source}`"
    rows = "one row per key, updated" if fold.output_mode == "update" else "rows are appended"
    yield "table", f"`tables/{stream.name}` ({fold.output_mode}: {rows})"
    yield "key", f"`{fold.keys.text()}`"
    arrival = f"on arrival (a look every {stream.on_arrival}), " if stream.on_arrival else ""
    yield "schedule, delay", f"{arrival}`{stream.schedule}` (UTC), {stream.watermark_delay}"
    if stream.settings:
        yield "settings", ", ".join(f"{name} {value}" for name, value in stream.settings.items())
