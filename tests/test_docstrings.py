"""Examples in docstrings are true, and each docstring is a sentence that says what a thing is or does."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [file for room in ("include", "dags", "spark_jobs") for file in (ROOT / room).rglob("*.py")]
FRAGMENT = re.compile(r"(What|Whether|How|Of|Which|Who|Whose|As) ")
KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _with_examples() -> list[str]:
    named = (file.relative_to(ROOT).with_suffix("") for file in FILES if ">>> " in file.read_text())
    return [".".join(name.parts) for name in named]


@pytest.mark.parametrize("module", _with_examples())
def test_examples_are_true(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_no_docstring_is_a_fragment():
    found = [
        f"{file.relative_to(ROOT)}: {text.splitlines()[0]}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, KINDS)
        and (text := ast.get_docstring(node)) is not None
        and FRAGMENT.match(text)
    ]
    assert found == []
