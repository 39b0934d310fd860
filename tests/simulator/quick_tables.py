"""The tables of a simulation, without reading their logs anew each time that one is opened.

A run of a stream opens tables thirty times or so, which was nearly all of its time. Here a table
stays open, and the rows of the `ops` tables stay in memory, for as long as the newest commit
that was read is the same file: so a table that was put back from a copy, or made anew, is
noticed. What is read and written are the real tables.

All that open the newest version of a table share it. Who holds one while another commits sees
it move on: in a simulation one process runs at a time.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import include.lake.delta_log
import include.lake.ops
from include.coverage.judge import LateGroup, late_groups
from include.lake.ops_schemas import SCHEMAS
from include.lake.paths import Lake
from include.plans import stream_identity as code_fingerprint


class _Open(NamedTuple):
    raw: Any  # what a DeltaTable is a shell of
    version: int
    commit: tuple[int, int, int]  # which file that version is
    log: frozenset[str]  # the files of the log, to which an open table comes back


class QuickTables:
    """Open tables, by their paths."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._rows: dict[str, tuple[_Open, pa.Table]] = {}
        self._files: dict[str, dict[str, pa.Table]] = {}
        self._answers: dict[tuple[Any, ...], tuple[_Open | None, pa.Table]] = {}
        self._read_ops_of: Callable[..., pa.Table] = include.lake.ops.read_ops
        self._late: dict[tuple[Any, ...], tuple[_Open | None, list[LateGroup]]] = {}
        self._late_groups_of = late_groups
        self._code: dict[tuple[str, bytes], dict[str, str]] = {}
        self._modules_of: Callable[[str], dict[str, str]] = code_fingerprint._modules
        self._said: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._init: Callable[..., None] = DeltaTable.__init__
        self._ensure: Callable[[Lake, str], DeltaTable] = include.lake.ops._ensure_table

    def install(self, patch: pytest.MonkeyPatch) -> None:
        quick = self

        def init(table: Any, table_uri: Any, version: int | None = None, **named: Any) -> None:
            given = {name: value for name, value in named.items() if value is not None}
            quick._open_table(table, str(table_uri), version, given)

        patch.setattr(include.lake.delta_log, "KEPT", 0)  # what is open here moves on
        patch.setattr(DeltaTable, "__init__", init)
        patch.setattr(include.lake.ops, "dataset_without_bounds", self._dataset)
        _replace(patch, "read_ops", include.lake.ops.read_ops, self._read_ops)
        _replace(patch, "update_ops", include.lake.ops.update_ops, self._update_ops)
        _replace(patch, "late_groups", late_groups, self._late_groups)
        for name in ("get_add_actions", "history", "to_pyarrow_dataset", "transaction_version"):
            patch.setattr(DeltaTable, name, self._once(getattr(DeltaTable, name)))
        patch.setattr(include.lake.ops, "_ensure_table", self._ensure_table)
        patch.setattr(code_fingerprint, "_modules", self._modules)

    def _modules(self, name: str) -> dict[str, str]:
        """In the place of that of `code_fingerprint`: the same file, which imports none, once."""
        file = code_fingerprint._file_of(name)
        asked = name, b"" if file is None else file.read_bytes()
        if asked not in self._code:
            self._code[asked] = self._modules_of(name)
        return dict(self._code[asked])

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

    def _dataset(self, path: str) -> "_Rows":
        """In the place of `dataset_without_bounds`: as much of it as `read_ops` uses."""
        table = DeltaTable(path)
        known = self._open[path]
        if path not in self._rows or self._rows[path][0] != known:
            self._rows[path] = known, self._read(path, table)
        return _Rows(self._rows[path][1])

    def _read(self, path: str, table: DeltaTable) -> pa.Table:
        """All rows. A file has a name of its own for ever, so each is read once."""
        fields = pa.schema(table.schema().to_arrow())
        schema = pa.schema([field.remove_metadata() for field in fields])
        before, now = self._files.get(path, {}), {}
        for name in pa.table(table.get_add_actions())["path"].to_pylist():
            known = before.get(name)
            if known is None or known.schema != schema:
                known = _rows_in(f"{path}/{name}", schema)
            now[name] = known
        self._files[path] = now
        return pa.concat_tables([schema.empty_table(), *now.values()]).combine_chunks()

    def _once(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of `DeltaTable` that says the same of the same version each time."""

        def answer(table: DeltaTable, *args: Any, **named: Any) -> Any:
            path, version = table.table_uri, table.version()
            # (A dataset's file system follows from the path.)
            given = tuple(sorted((n, v) for n, v in named.items() if n != "filesystem"))
            asked = (method.__name__, path, version, args, given)
            commit = _commit(path.removeprefix("file://").rstrip("/"), version)
            known = self._said.get(asked)
            if known is None or commit is None or known[0] != commit:
                known = commit, method(table, *args, **named)
                self._said[asked] = known
            return known[1]

        return answer

    def _read_ops(
        self,
        lake: Lake,
        name: str,
        where: Mapping[str, Any] | None = None,
        *part: Any,
        **named: Any,
    ) -> pa.Table:
        """In the place of `include.lake.ops.read_ops`: the same question of the same commit once."""
        path = lake.ops(name)
        if part or named or not lake.is_delta_table(path):
            return self._read_ops_of(lake, name, where, *part, **named)
        DeltaTable(path)
        asked = (path, *sorted((where or {}).items()))
        known = self._answers.get(asked)
        if known is None or known[0] != self._open.get(path):
            known = self._open.get(path), self._read_ops_of(lake, name, where)
            self._answers[asked] = known
        return known[1]

    def _update_ops(
        self, lake: Lake, name: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """In the place of `include.lake.ops.update_ops`: one commit as well, but no MERGE."""
        before = self._read_ops(lake, name).to_pylist()
        after = [dict(row) for row in before]
        for known in after:
            for row in rows:
                if all(known[column] == row[column] for column in key):
                    known.update(row)
        if after != before:
            plain = pa.schema([field.remove_metadata() for field in SCHEMAS[name]])
            data = pa.Table.from_pylist(after, schema=plain)
            write_deltalake(self._ensure_table(lake, name), data, mode="overwrite")

    def _late_groups(self, lake: Lake, source: str, *asked: Any) -> list[LateGroup]:
        """In the place of `late_groups`: the same question of the same bronze once."""
        path = lake.bronze(source)
        if not lake.is_delta_table(path):
            return self._late_groups_of(lake, source, *asked)
        DeltaTable(path)
        now, known = self._open.get(path), self._late.get((path, *asked))
        if known is None or known[0] != now:
            known = now, self._late_groups_of(lake, source, *asked)
            self._late[(path, *asked)] = known
        return known[1]

    def _ensure_table(self, lake: Lake, name: str) -> DeltaTable:
        """In the place of `include.lake.ops._ensure_table`, which does what is not done yet."""
        path = lake.ops(name)
        wanted = set(SCHEMAS[name].names)
        if lake.is_delta_table(path):
            table = DeltaTable(path)
            if wanted <= {field.name for field in table.schema().fields}:
                return table
        return self._ensure(lake, name)


def _replace(patch: pytest.MonkeyPatch, name: str, old: Any, new: Any) -> None:
    """In all modules that have imported it; a planted bug in its place stays."""
    for path, module in list(sys.modules.items()):
        is_ours = path.startswith(("include.", "spark_jobs.", "tests."))
        if is_ours and getattr(module, name, None) is old:
            patch.setattr(module, name, new)


class _Rows:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def to_table(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.Table:
        rows = self._rows if filter is None else self._rows.filter(filter)
        return rows if columns is None else rows.select(columns)


def _rows_in(file: str, schema: pa.Schema) -> pa.Table:
    rows = pq.ParquetFile(file).read()
    there = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in there
        else pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        for field in schema
    ]
    return pa.table(columns, schema=schema)


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
