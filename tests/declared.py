"""Streams whose file a test has written: what is computed is taken from there."""

from dataclasses import replace
from typing import Any

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


def with_fold(stream: Stream, fold: KeyedFold) -> Stream:
    """The entry of a test's fold, whose columns need no comments."""
    comments = {column.name: "Of a test" for column in fold.output_columns}
    return replace(stream, fold=fold, comments=comments, settings={})
