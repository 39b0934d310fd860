"""Streams whose file a test has written: what is computed is taken from there."""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import include.streams
from include import registry
from include.fold.definition import KeyedFold
from include.settings import Stream

# What an entry computes until its file is there.
NOT_WRITTEN: Any = None


def computes(module: Any) -> dict[str, Any]:
    """The fields of a Stream that say what is computed, of a module without an entry."""
    return {
        "fold": module.define if hasattr(module, "define") else module.FOLD,
        "comments": module.COMMENTS,
        "migrate_state": getattr(module, "migrate_state", None),
        "title": module.__doc__.strip().splitlines()[0],
    }


def deploy(stream: Stream, module: Any) -> None:
    """In place: who holds the entry comes to the new code, as a new process would."""
    for name, value in computes(module).items():
        object.__setattr__(stream, name, value)


def look_in(patch: pytest.MonkeyPatch, folder: Path, alone: bool = False) -> None:
    """Streams' files are looked for there, beside the shipped ones, or alone."""
    shipped = [] if alone else include.streams.__path__
    patch.setattr(include.streams, "__path__", [*shipped, str(folder)])
    # A file that is written again within a second would be taken from the cache.
    patch.setattr(sys, "dont_write_bytecode", True)


def put_file(file: Path, text: str, stream: Stream) -> Any:
    """Write a stream's file, for its entry to compute; the module, as a new process would load it."""
    file.write_text(text)
    sys.modules.pop(f"include.streams.{file.stem}", None)
    importlib.invalidate_caches()
    module = importlib.import_module(f"include.streams.{file.stem}")
    deploy(stream, module)
    return module


@dataclass
class Entry:
    """As a module that declares it."""

    STREAM: Stream


def register(patch: pytest.MonkeyPatch, streams: Callable[[], Mapping[str, Stream]]) -> None:
    """These streams alone, in the place of the shipped ones."""
    patch.setattr(registry, "_files", lambda: set(streams()))
    patch.setattr(registry, "_module", lambda name: Entry(streams()[name]))


def with_fold(stream: Stream, fold: KeyedFold) -> Stream:
    """The entry of a test's fold, whose columns need no comments."""
    comments = {column.name: "Of a test" for column in fold.output_columns}
    return replace(stream, fold=fold, comments=comments, settings={})
