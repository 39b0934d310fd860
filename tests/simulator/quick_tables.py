"""The tables of a simulation, without reading their logs anew each time that one is opened.

Here a table stays open for as long as the newest commit that was read is the same file: so a table
that was put back from a copy, or made anew, is noticed. What is read and written are the real tables.

All that open the newest version of a table share it. Who holds one while another commits sees
it move on: in a simulation one process runs at a time.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable

import include.lake.delta_log


class _Open(NamedTuple):
    raw: Any  # what a DeltaTable is a shell of
    version: int
    commit: tuple[int, int, int]  # which file that version is
    log: frozenset[str]  # the files of the log, to which an open table comes back


class QuickTables:
    """Open tables, by their paths."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._init: Callable[..., None] = DeltaTable.__init__

    def install(self, patch: pytest.MonkeyPatch) -> None:
        quick = self

        def init(table: Any, table_uri: Any, version: int | None = None, **named: Any) -> None:
            given = {name: value for name, value in named.items() if value is not None}
            quick._open_table(table, str(table_uri), version, given)

        # What is open here moves on.
        patch.setattr(include.lake.delta_log, "_log_as_read", lambda path: frozenset())
        patch.setattr(DeltaTable, "__init__", init)

    def _open_table(
        self, table: Any, path: str, version: int | None, named: dict[str, Any]
    ) -> None:
        """In the place of `DeltaTable.__init__`."""
        known = None if named else self._open.get(path)
        if known is None or not _is_still(path, known):
            self._init(table, path, version, **named)
            if version is None and not named:
                self._keep(path, table)
            return
        table._storage_options, table._table = None, known.raw
        if _commit(path, table.version() + 1) is not None:
            table.update_incremental()
        self._keep(path, table)
        if version not in (None, table.version()):
            self._init(table, path, version)

    def _keep(self, path: str, table: Any) -> None:
        version = table.version()
        commit = _commit(path, version)
        if commit is not None:  # None: only a checkpoint is left of it
            self._open[path] = _Open(table._table, version, commit, _log(path))


def _is_still(path: str, known: _Open) -> bool:
    return _commit(path, known.version) == known.commit and known.log <= _log(path)


def _log(path: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(f"{path}/_delta_log"))  # noqa: PTH208
    except FileNotFoundError:
        return frozenset()


def _commit(path: str, version: int) -> tuple[int, int, int] | None:
    try:  # many a time, so without pathlib
        found = os.stat(f"{path}/_delta_log/{version:020}.json")  # noqa: PTH116
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
