"""The pages of docs/ that say what the code says of itself: `python -m include.reference` writes them.

A test keeps them so. What is in a lake has the same words, as comments of its tables.
"""

from collections.abc import Iterable, Iterator, Sequence

from include.catalogue import FINDINGS
from include.fold.product_table import product_columns
from include.ingest import ingest_log as log_rows
from include.ingest.bronze_tables import QUARANTINE_COLUMNS, added_columns, bronze_columns
from include.lake.columns import ARROW_TYPES, Column
from include.lake.dead_letters import COLUMNS as DEAD_LETTER_COLUMNS
from include.lake.ops import DESCRIPTIONS, SCHEMAS, Severity
from include.registry import all_sources, all_streams
from include.settings import PROJECT
from include.stream_definition import load_definition
from include.text_table import markdown_cell

SQL_TYPES = {arrow: sql for sql, arrow in ARROW_TYPES.items()}
TABLES = """# Tables

Made by `.venv/bin/python -m include.reference`. All instants are
UTC, in microseconds. [reading.md](reading.md) has a question for each product, older versions and changes."""
FOUND = """# Findings

Made by `.venv/bin/python -m include.reference`. A finding is a row of `ops/findings`, with figures, and the command to enter. It
is on the [page](operate.md#pages) of its stream, in the log of the task that found it, and counted in the metric `stateful_lake_findings`. What has a limit is found
above it: a field of the stream's `limits=`, or of its entry."""
HEARD: dict[Severity, str] = {
    "error": "Besides, the task that finds it is red, and people are told by an [alert](operate.md#alerts).",
    "warning": "Besides, people are told by an [alert](operate.md#alerts); the Dag stays green.",
    "info": "Nobody is told: it is there for who looks.",
}


def pages() -> dict[str, str]:
    """Each page as Markdown, by its file."""
    sections = {
        "docs/findings.md": [FOUND, *_findings()],
        "docs/tables.md": [TABLES, *_tables()],
    }
    return {file: "\n\n".join(parts) + "\n" for file, parts in sections.items()}


def _findings() -> Iterator[str]:
    names = ("finding", "of", "found by", "what it is", "limit", "what to do")
    for severity, heard in HEARD.items():
        rows = [
            (f"`{f.finding}`", f.subject, f.by, f.help, f"`{f.limit}`" if f.limit else "", f.do)
            for f in FINDINGS.values()
            if f.severity == severity
        ]
        yield f"## {severity.capitalize()}\n\n{heard}\n\n{_table(names, rows)}"


def _tables() -> Iterator[str]:
    yield "## Products, a table for each stream"
    for stream in all_streams():
        definition = load_definition(stream)
        columns = product_columns(definition.fold, definition.comments)
        how = f"{definition.fold.output_mode}; key `{definition.fold.keys.text()}`"
        yield _columns(f"tables/{stream.name}", f"{definition.title.rstrip('.')} ({how})", columns)
    yield "## Sources"
    for source in all_sources():
        own = bronze_columns(source)[: len(source.fields) + 1]
        yield _columns(f"bronze/{source.name}", source.comment, own)
    each = added_columns(all_sources()[0])[1:]
    yield _columns("bronze/<source>", "Beside these, in each", each)
    yield _columns("quarantine/<source>", "Rows and files that are no events", QUARANTINE_COLUMNS)
    yield _columns("ingest_log/<source>", log_rows.COMMENT, log_rows.COLUMNS)
    yield "## Beside the products"
    yield _columns("dead_letters/<stream>", "What a state function failed for", DEAD_LETTER_COLUMNS)
    yield "## What happened: ops"
    for name, schema in SCHEMAS.items():
        comments = [(f, f.metadata[b"comment"].decode()) for f in schema]
        columns = [Column(f.name, SQL_TYPES[f.type], comment) for f, comment in comments]
        yield _columns(f"ops/{name}", DESCRIPTIONS[name], columns)


def _columns(table: str, what: str, columns: Iterable[Column]) -> str:
    rows = [(f"`{c.name}`", c.type, markdown_cell(c.comment)) for c in columns]
    return f"### {table}\n\n{what.rstrip('.')}.\n\n{_table(('column', 'type', 'meaning'), rows)}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (names, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(names)}", *lines[1:]])


if __name__ == "__main__":
    for file, text in pages().items():
        (PROJECT / file).write_text(text)
