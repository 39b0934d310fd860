"""Each command that a message, a docstring or a page names is one that the command line takes."""

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from include.cli.__main__ import load
from include.lake.errors import SettingsError

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"""\./stateful[^\S\n]?([^`\n|#)"&]*)""")
# What stands for a value in a page; `...` names a command without its arguments.
PLACEHOLDERS = {
    "NAME": "user_counts",
    "SOURCE": "signals",
    "x": "user_counts",
    "spending": "user_counts",  # of the README and docs/sources.md
    "payments": "signals",
    "TO": "2026-01-05",
    "FROM": "2026-01-05",
    "UNTIL": "2026-01-06",
    "INSTANT": "2026-01-05",
    "{name}": "user_counts",
    "N": "7",
    "FILE": "README.md",
    "fixed.jsonl": "README.md",
    "/some/folder": ".",
    "/data/lake": ".",
}


def filled(value: ast.expr) -> str:
    """A value that a placeholder of a message may hold."""
    name = ast.unparse(value).replace("'", "").rpartition(".")[0] or ast.unparse(value)
    if name in ("option", "example", "then"):
        return ""
    if name in ("start", "until"):
        return "2026-01-05"
    return "signals" if "source" in name or "watermark" in name else "user_counts"


def text_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (
            filled(part.value) if isinstance(part, ast.FormattedValue) else text_of(part)
            for part in node.values
        )
        return "".join(part or "" for part in parts)
    return None


def texts() -> Iterator[tuple[str, str]]:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield page.name, page.read_text()
    for folder in ("dags", "include", "spark_jobs"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            inner: set[int] = set()
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    inner |= {id(part) for part in node.values}
                text = text_of(node)
                if text is not None and id(node) not in inner:
                    yield str(file.relative_to(ROOT)), text


def commands() -> Iterator[tuple[str, str]]:
    for where, text in texts():
        for found in NAMED.finditer(text):
            yield where, without_redirection(found[1].split("--help")[0])


def without_redirection(command: str) -> str:
    """The command without what the shell takes."""
    return command.split(" > ")[0].strip()


@pytest.fixture(scope="module")
def named() -> list[tuple[str, str]]:
    """Each command with the file that names it."""
    # A finalizer that runs in the middle of a parse ends it with a SystemError (CPython gh-106905).
    gc.disable()
    try:
        return sorted({(where, command) for where, command in commands() if command})
    finally:
        gc.enable()


def test_messages_name_commands(named):
    assert len(named) > 40
    assert {where.partition("/")[0] for where, _ in named} >= {"README.md", "include", "spark_jobs"}


def test_the_command_line_takes_what_messages_and_pages_name(named, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("LAKE", str(tmp_path))
    wrong = {}
    for where, command in named:
        named_here = "signals" if command.startswith("ingest") else "user_counts"
        shown = re.sub(r"[\[\]]", "", command.replace("{}", named_here))
        words = [PLACEHOLDERS.get(word, word) for word in shown.split()]
        try:
            take(words)
        except (typer.TyperException, SettingsError) as error:
            wrong[where, command] = str(error)
    assert wrong == {}


def take(words: list[str]) -> None:
    """Parse a command with its arguments; one that is only named needs none."""
    context = None
    command = typer.main.get_command(load())
    while words and hasattr(command, "commands"):
        context = command.make_context("stateful", words, parent=context)
        _, command, words = command.resolve_command(context, words)
    if words:
        command.make_context(command.name, words, parent=context)


def leaves(command, path=()):
    if not hasattr(command, "commands"):
        return [(path, command)]
    below = command.commands.items()
    return [found for name, each in below for found in leaves(each, (*path, name))]


def test_each_command_has_an_example_that_it_takes(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKE", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for path, command in leaves(typer.main.get_command(load())):
        told = command.epilog.removeprefix("Example:  ./stateful ")
        example = without_redirection(told).split()
        assert tuple(example[: len(path)]) == path
        take([PLACEHOLDERS.get(word, word) for word in example])
