"""What a stream's Dag says of its stream, above what all of these Dags have in common."""

from collections.abc import Iterator

from include.settings import Limits, Stream
from include.stream_definition import load_definition


def stream_doc(stream: Stream, common: str) -> str:
    """Markdown: title, table, key, source, settings and limits of `stream`, then `common`."""
    facts = "\n".join(f"| {name} | {value} |" for name, value in _facts(stream))
    return f"**{stream.title}**\n\n| | |\n|---|---|\n{facts}\n\n{common}"


def _facts(stream: Stream) -> Iterator[tuple[str, str]]:
    fold = load_definition(stream).fold
    columns = ", ".join(f"`{column.name}`" for column in fold.output_columns)
    yield "file", f"`include/streams/{stream.name}.py`"
    yield "source", f"`bronze/{stream.source}`"
    yield "table", f"`tables/{stream.name}` ({fold.output_mode}): {columns}"
    yield "key", f"`{fold.keys.text()}`"
    yield "schedule, delay", f"`{stream.schedule}` (UTC), {stream.watermark_delay}"
    if stream.settings:
        yield "settings", ", ".join(f"{name} {value}" for name, value in stream.settings.items())
    yield "function fails", f"`{stream.on_error}`"
    yield "state", f"{stream.buckets} buckets, {stream.state_partitions} partitions"
    yield "limits", ", ".join(_limits(stream.limits)) or "none"


def _limits(limits: Limits) -> Iterator[str]:
    for name, most in vars(limits).items():
        if most is not None:
            yield f"{name} {most:,}"
