"""docs/tables.md, made of what each table says of itself: `python -m include.tables_page`.

A test keeps the page so. What is in a lake has the same words, as comments of its tables.
"""

import sys
from collections.abc import Iterable, Iterator

from include.fold.product_table import product_columns
from include.ingest import ingest_log as log_rows
from include.ingest.bronze_tables import QUARANTINE_COLUMNS, added_columns, bronze_columns
from include.lake.columns import ARROW_TYPES, Column
from include.lake.dead_letters import COLUMNS as DEAD_LETTER_COLUMNS
from include.lake.ops import DESCRIPTIONS, SCHEMAS
from include.registry import all_sources, all_streams
from include.stream_definition import load_definition
from include.text_table import markdown_cell

SQL_TYPES = {arrow: sql for sql, arrow in ARROW_TYPES.items()}
PAGE = "docs/tables.md"
HEAD = """# Tables

Made from the tables' own comments by `.venv/bin/python -m include.tables_page`. All instants are
UTC, in microseconds. [reading.md](reading.md) has a question for each product, older versions and changes."""


def tables_page() -> str:
    """The whole page, as Markdown."""
    sections = [HEAD, *_products(), *_sources(), *_of_all_streams(), *_ops()]
    return "\n\n".join(sections) + "\n"


def _products() -> Iterator[str]:
    yield "## Products, a table for each stream"
    for stream in all_streams():
        definition = load_definition(stream)
        columns = product_columns(definition.fold, definition.comments)
        how = f"{definition.fold.output_mode}; key `{definition.fold.keys.text()}`"
        yield _section(f"tables/{stream.name}", f"{definition.title.rstrip('.')} ({how})", columns)


def _sources() -> Iterator[str]:
    yield "## Sources"
    for source in all_sources():
        own = bronze_columns(source)[: len(source.fields) + 1]
        yield _section(f"bronze/{source.name}", source.comment, own)
    each = added_columns(all_sources()[0])[1:]
    yield _section("bronze/<source>", "Beside these, in each", each)
    yield _section("quarantine/<source>", "Rows and files that are no events", QUARANTINE_COLUMNS)
    yield _section("ingest_log/<source>", log_rows.COMMENT, log_rows.COLUMNS)


def _of_all_streams() -> Iterator[str]:
    yield "## Beside the products"
    yield _section("dead_letters/<stream>", "What a state function failed for", DEAD_LETTER_COLUMNS)


def _ops() -> Iterator[str]:
    yield "## What happened: ops"
    for name, schema in SCHEMAS.items():
        columns = [
            Column(field.name, SQL_TYPES[field.type], field.metadata[b"comment"].decode())
            for field in schema
        ]
        yield _section(f"ops/{name}", DESCRIPTIONS[name], columns)


def _section(table: str, what: str, columns: Iterable[Column]) -> str:
    rows = [f"| `{c.name}` | {c.type} | {markdown_cell(c.comment)} |" for c in columns]
    head = ["| column | type | meaning |", "|---|---|---|"]
    return "\n".join([f"### {table}", "", f"{what.rstrip('.')}.", "", *head, *rows])


if __name__ == "__main__":
    sys.stdout.write(tables_page())
