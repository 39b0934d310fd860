"""The pages of docs/ that are made from the code: `python -m docs.make_reference` writes them.

A test compares them. The tables of a lake have the same words as comments of their columns.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence

from include.catalogue import FINDINGS
from include.connectors import (
    Csv,
    DeltaTable,
    KafkaTopic,
    Merged,
    SchemaRegistry,
    Secured,
    StreamTable,
    Times,
)
from include.fold.definition import EMITTED_AT, EMITTED_DATE, Deduplicate, KeyedFold
from include.fold.product_table import EMITTED_AT_COMMENTS
from include.ingest import ingest_log as log_rows
from include.ingest.bronze_tables import QUARANTINE_COLUMNS, added_columns
from include.lake.columns import SQL_NAMES, Column
from include.lake.dead_letters import COLUMNS as DEAD_LETTER_COLUMNS
from include.lake.ops import DESCRIPTIONS, SCHEMAS, Severity
from include.settings import PROJECT, Check, Field, Limits, SavepointRules, Source, Stream
from include.text_table import markdown_cell

ARGUMENTS = """# Reference: every argument

Made by `.venv/bin/python -m docs.make_reference`. What has no default has to be given. [streams.md](streams.md) and
[sources.md](sources.md) show how to use them. Import them from `include.settings`, connectors from `include.connectors`. Environment variables are in [deploy.md](deploy.md)."""
# Defaults that are written as `field(...)`, or none.
FACTORY = r"field\(default_factory=(\w+)\)"
FIELD = r" = field\(repr=False\)|field\(default=(\w+), .*\)"
GIVEN_ELSEWHERE = ("function", "stream", "on_error", "deduplicate")  # of a KeyedFold
DECLARED: dict[type, str] = {
    Stream: "`STREAM = Stream(...)` of a stream's file.",
    KeyedFold: "Given to `map_groups_with_state` and `flat_map_groups_with_state`, of `include.fold.definition`.",
    Deduplicate: "`deduplicate=` of a stream or source.",
    Check: "`checks=` of a stream.",
    Limits: "`limits=` of a stream. None is no limit.",
    SavepointRules: "`savepoints=` of a stream.",
    Source: "An item of `SOURCES` in `sources.py`.",
    Field: "`fields=` of a source.",
    Times: "`times=` of a source or field.",
    Csv: "`csv=` of a source.",
    KafkaTopic: "`connector=` of a source.",
    SchemaRegistry: "`schema_registry=` of a topic.",
    Secured: "A topic and a schema registry have these as well.",
    DeltaTable: "`connector=` of a source.",
    StreamTable: "`connector=` of a source.",
    Merged: "`connector=` of a source: `Merged(orders=timedelta(minutes=10), ...)`.",
}
TOPIC = KafkaTopic(servers="any", topic="any")
ANY_SOURCE = Source(name="any", time_field="time_field", fields=(), comment="", connector=TOPIC)
TABLES = """# Tables

Made by `.venv/bin/python -m docs.make_reference`. All instants are UTC, in microseconds. How to read them: [README](../README.md#read-the-tables)."""
FOUND = """# Findings

Made by `.venv/bin/python -m docs.make_reference`. A finding is a row of `ops/findings`, on the [page](operate.md#pages) of its stream, in the log of
the task that found it, and in the metric `stateful_lake_findings`. A field of `limits=`, or of the entry, in brackets is its limit."""
HEARD: dict[Severity, str] = {
    "error": "The task that finds it is red, and an [alert](operate.md#alerts) is sent.",
    "warning": "An [alert](operate.md#alerts) is sent; the Dag stays green.",
    "info": "No alert is sent.",
}


def pages() -> dict[str, str]:
    """Return each page as Markdown, by its file."""
    sections = {
        "docs/findings.md": [FOUND, *_findings()],
        "docs/reference.md": [ARGUMENTS, *_arguments()],
        "docs/tables.md": [TABLES, *_tables()],
    }
    return {file: "\n\n".join(parts) + "\n" for file, parts in sections.items()}


def _findings() -> Iterator[str]:
    names = ("finding", "found by", "what it is", "what to do")
    for severity, heard in HEARD.items():
        rows = [
            (f"`{f.finding}`", f.by, f.help + (f" (`{f.limit}`)" if f.limit else ""), f.do)
            for f in FINDINGS.values()
            if f.severity == severity
        ]
        yield f"## {severity.capitalize()}\n\n{heard}\n\n{_table(names, rows)}"


def _arguments() -> Iterator[str]:
    for of, where in DECLARED.items():
        hidden = GIVEN_ELSEWHERE if of is KeyedFold else ()
        rows = [
            (f"`{declared}`".replace("|", r"\|"), said[:1].upper() + said[1:])
            for name, declared, said in _fields(of)
            if name not in hidden
        ]
        yield f"## {of.__name__}\n\n{where}\n\n{_table(('argument', 'meaning'), rows)}"


def _fields(of: type) -> Iterator[tuple[str, str, str]]:
    """Yield each field of a class: its name, its declaration, the comments above and behind it."""
    text = inspect.getsource(of)
    comments = {
        token.start[0]: (token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    (tree,) = ast.parse(text).body
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.AnnAssign):
            first = node.lineno
            while comments.get(first - 1, ("", False))[1]:
                first -= 1
            lines = range(first, (node.end_lineno or first) + 1)
            said = " ".join(comments[line][0] for line in lines if line in comments)
            declared = re.sub(FIELD, r"\1", re.sub(FACTORY, r"\1()", ast.unparse(node)))
            yield ast.unparse(node.target), declared, re.sub(r"(?<!\.)\.$", "", said)


def _tables() -> Iterator[str]:
    outputs = "The product: what the function returns, with the stream's `comments`, and these"
    at = f"{EMITTED_AT_COMMENTS['append']}; of an update table: {EMITTED_AT_COMMENTS['update']}"
    date = Column(EMITTED_DATE, "date", "Of an append table: partition, the date of emitted_at")
    yield _columns("tables/<stream>", outputs, [Column(EMITTED_AT, "timestamp", at), date])
    events = "The source's events: its fields, and these (those of Kafka only for a topic)"
    yield _columns("bronze/<source>", events, added_columns(ANY_SOURCE))
    yield _columns("quarantine/<source>", "Rows and files that are no events", QUARANTINE_COLUMNS)
    yield _columns("ingest_log/<source>", log_rows.COMMENT, log_rows.COLUMNS)
    yield _columns("dead_letters/<stream>", "What a state function failed for", DEAD_LETTER_COLUMNS)
    for name, schema in SCHEMAS.items():
        comments = [(f, f.metadata[b"comment"].decode()) for f in schema]
        columns = [Column(f.name, SQL_NAMES[f.type], comment) for f, comment in comments]
        yield _columns(f"ops/{name}", DESCRIPTIONS[name], columns)


def _columns(table: str, what: str, columns: Iterable[Column]) -> str:
    rows = [(f"`{c.name}`", c.type, markdown_cell(c.comment)) for c in columns]
    return f"## {table}\n\n{what.rstrip('.')}.\n\n{_table(('column', 'type', 'meaning'), rows)}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (names, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(names)}", *lines[1:]])


if __name__ == "__main__":
    for file, text in pages().items():
        (PROJECT / file).write_text(text)
