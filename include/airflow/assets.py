"""A stream's Dag in Airflow: its Assets, its pools, and the text that documents it."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import Asset

import include.streams
from include.fold.definition import Definition
from include.settings import Source, Stream
from include.stream_definition import load_definition
from include.text_table import markdown_cell


def table_asset(stream: Stream, lake: str) -> Asset:
    """Its events say what a run has changed; downstream Dags are scheduled on it."""
    return Asset(name=stream.name, uri=as_uri(f"{lake}/tables/{stream.name}"))


def bronze_asset(source: Source, lake: str) -> Asset:
    return Asset(name=f"bronze/{source.name}", uri=as_uri(f"{lake}/bronze/{source.name}"))


def ops_asset(lake: str) -> Asset:
    """What the daily maintenance looks at: its alerts are kept with it."""
    return Asset(name="ops", uri=as_uri(f"{lake}/ops"))


def source_asset(source: Source, lake: str) -> Asset:
    """Files in landing, a topic or others' table: whoever fills it may have it as an outlet."""
    place = f"{lake}/landing/{source.name}" if source.connector is None else source.connector.uri
    return Asset(name=f"source/{source.name}", uri=as_uri(place))


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
    """Tell whether a pool is named as those of streams and sources are."""
    return pool.startswith(("source_", "stream_"))


RED = (
    "**When it is red**: the log of the red task says what was wrong and what to do, the tab *State* "
    "what is found and open, and the table's columns. Clearing a task is always safe. More is at the "
    "end of this page."
)


def stream_doc(stream: Stream, common: str) -> str:
    """Markdown: what `stream` computes, and its facts; then `common`."""
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
    """The file's docstring but for its first line, which is the title; and the function's."""
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
    yield "schedule, delay", f"`{stream.schedule}` (UTC), {stream.watermark_delay}"
    if stream.settings:
        yield "settings", ", ".join(f"{name} {value}" for name, value in stream.settings.items())
