"""A stream's file of `include.streams`, and one that it imports, written anew by a test."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from include.settings import Stream
from include.stream.stream_identity import code_fingerprint
from tests.declared import NOT_WRITTEN, deploy, look_in

STREAM = Stream(
    name="tried_stream",
    fold=NOT_WRITTEN,
    comments={},
    source="signals",
    schedule="0 * * * *",
    watermark_delay=timedelta(minutes=10),
    settings={"step": timedelta(minutes=1)},
)
HELPER = """
def added(total, value):
    return total + value
"""
SOURCE = '''
"""The title."""
from typing import NamedTuple
from include.fold.definition import flat_map_groups_with_state
from include.streams.tried_helper import added

class Signal(NamedTuple):
    device_id: int
    value: int

class Total(NamedTuple):
    total: int

class Row(NamedTuple):
    device_id: int
    total: int

def define(*, step):
    def fold(key, events, state):
        """Sums."""
        total = state.get.total if state.exists else 0
        for event in events:
            if event.value > 0:
                total = added(total, event.value)
        state.update(Total(total))
        yield Row(key, total)
    return flat_map_groups_with_state(
        fold, key="device_id", event=Signal, state=Total, output=Row, output_mode="append")

COMMENTS = {"device_id": "The device", "total": "The sum"}
'''
IMPORT = "from include.streams.tried_helper import added"


class Files:
    """Two modules of `include.streams`, a stream and what it imports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fingerprint(
        self, source: str = SOURCE, helper: str = HELPER, stream: Stream = STREAM
    ) -> str:
        self.write(source, helper)
        deploy(stream, importlib.import_module("include.streams.tried_stream"))
        return code_fingerprint(stream, None)

    def write(self, source: str, helper: str) -> None:
        for name, text in (("tried_stream", source), ("tried_helper", helper)):
            (self.folder / f"{name}.py").write_text(text)
        self.forget()

    def forget(self) -> None:
        for name in ("tried_stream", "tried_helper", "tried_package", "tried_package.sums"):
            sys.modules.pop(f"include.streams.{name}", None)
        importlib.invalidate_caches()


@contextmanager
def files_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """`include.streams` is `folder` meanwhile."""
    look_in(monkeypatch, folder, alone=True)
    files = Files(folder)
    yield files
    files.forget()


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)
