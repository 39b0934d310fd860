"""Of a key that a function makes of an event, what counts as that function's code."""

import importlib
import sys
from typing import Any

import pytest

from include.stream.stream_identity import key_fingerprint
from include.streams.user_counts import FOLD
from tests.tried_stream import changed, files_in

SOURCE = '''
"""Sums of each name."""
from typing import NamedTuple
from include.fold.definition import flat_map_groups_with_state
from include.streams.tried_helper import trimmed

FROM, TO = "äö", "ao"

class Signal(NamedTuple):
    sender: str

class Total(NamedTuple):
    total: int

class Row(NamedTuple):
    name: str
    total: int

LETTERS = {}
LETTERS["ß"] = "s"
for letter, plain in zip(FROM, TO):
    LETTERS[letter] = plain

def plain(text):
    return "".join(LETTERS.get(letter, letter) for letter in trimmed(text))

def name(event: Signal) -> str:
    """Whose it is."""
    return plain(event.sender)

def fold(key, events, state):
    yield Row(key, 1)

FOLD = flat_map_groups_with_state(
    fold, key=name, event=Signal, state=Total, output=Row, output_mode="append")
'''
HELPER = "def trimmed(text):\n    return text.strip()\n"


@pytest.fixture
def files(tmp_path, monkeypatch):
    with files_in(tmp_path, monkeypatch) as made:
        yield made


def fingerprint(files: Any, source: str = SOURCE, helper: str = HELPER) -> str | None:
    files.write(source, helper)
    module = importlib.import_module("include.streams.tried_stream")
    found = key_fingerprint(module.FOLD)
    files.forget()
    assert "include.streams.tried_stream" not in sys.modules
    return found


def test_a_field_has_none():
    assert key_fingerprint(FOLD) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return plain(event.sender)", "return plain(event.sender).lower()"),
        ("LETTERS.get(letter, letter)", "LETTERS.get(letter, '')"),
        ('"äö"', '"äü"'),
        ('LETTERS["ß"] = "s"', 'LETTERS["ß"] = "z"'),
        ("LETTERS[letter] = plain", "LETTERS[letter] = plain + plain"),
    ],
)
def test_what_the_function_needs_counts(files, old, new):
    assert fingerprint(files, changed(SOURCE, old, new)) != fingerprint(files)


def test_a_module_of_streams_that_it_needs_counts(files):
    helper = changed(HELPER, "strip", "lstrip")
    assert fingerprint(files, helper=helper) != fingerprint(files)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    total: int\n\nclass Row", "    total: int\n    most: int\n\nclass Row"),
        ("    sender: str", "    sender: str\n    value: int"),
        ("yield Row(key, 1)", "yield Row(key, 2)"),
        ("Whose it is.", "Who sent it."),
    ],
)
def test_what_it_does_not_need_does_not(files, old, new):
    assert fingerprint(files, changed(SOURCE, old, new)) == fingerprint(files)


def test_of_one_that_a_function_makes_all_of_the_file_counts(files):
    made = """
def by(make):
    def name(event: Signal) -> str:
        return make(event)
    return name

FOLD = """
    source = changed(changed(SOURCE, "FOLD = ", made), "key=name", "key=by(name)")
    other = changed(source, "    total: int\n\nclass Row", "    most: int\n\nclass Row")
    assert fingerprint(files, source) != fingerprint(files, other)
