"""What each table was after our last commit to it, and whether it is still that: `ops/tables`.

A table that was put back from an older copy, or whose newest commit a power cut has emptied, looks
like any other, and jobs would go on from it without a word. So a job *seals* a table after each
of its commits, and asks `what_changed` before it builds on it: in milliseconds, without a JVM.

A seal holds the table's id, its version, and the names of that version's data files (as a hash;
names are unique). Later commits are gone through one by one: those that change no data are fine
(OPTIMIZE, VACUUM, a property), and so are those that `is_ours` accepts, as a job may have died
between its commit and the seal. A table without a seal is believed.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.lake.delta_log import commit_info, read_actions
from include.lake.ops import read_ops, upsert_ops
from include.lake.paths import Lake
from include.lake.read_tables import table_to_read
from include.lake.table_changes import (
    Actions,
    IsOurs,
    changed_since,
    files_at,
    hash_of,
    rows_of_dates,
)

Seal = Mapping[str, Any]  # a row of `ops/tables`
GONE = "gone"  # the id in the row of a table that is no more, and of which nobody expects anything


def nobody_is_ours(commit_info: Mapping[str, Any], actions: Actions) -> bool:
    """For tables of which every commit is sealed in the same breath."""
    return False


def rows_by_date(lake: Lake, table: str) -> dict[str, int]:
    """The rows of the newest version of `table` (such as bronze/signals) by partition."""
    return rows_of_dates(files_at(_path(lake, table), table_to_read(_path(lake, table))))


def seal(lake: Lake, table: str, same_rows: bool = False) -> None:
    """Record what `table` is now: to be called after each commit of ours, of any kind.

    `same_rows`: none has changed since it was sealed last.
    """
    before = read_seal(lake, table) if same_rows else None
    _write(lake, [_row(lake, table, table_to_read(_path(lake, table)), before)])


def seal_judged(lake: Lake, tables: Sequence[str], is_ours: IsOurs | None) -> str | None:
    """Seal those of `tables` whose newest version is not the one that is sealed, in one commit.

    How one of them came to be what it is by others, in one sentence, and nothing is sealed; None when
    none did. What is judged is what is sealed: whatever comes later is in no seal. Without `is_ours`
    they are not judged.
    """
    seals = read_seals(lake, tables)
    opened = {name: table_to_read(_path(lake, name)) for name in tables if _is_there(lake, name)}
    if is_ours and (change := first_change(lake, seals, is_ours, opened)):
        return change
    new = {name: table for name, table in opened.items() if not _is_of(seals.get(name), table)}
    _write(lake, [_row(lake, name, table, None) for name, table in new.items()])
    return None


def first_change(
    lake: Lake,
    seals: Mapping[str, Seal],
    is_ours: IsOurs,
    opened: Mapping[str, DeltaTable] = MappingProxyType({}),
) -> str | None:
    """How the first that has changed is not what our commits have made it; None when all are.

    `opened`: the versions to judge; of others the newest.
    """
    told = (
        changed_since(lake, sealed, is_ours, opened=opened.get(name))
        for name, sealed in seals.items()
    )
    return next((change for change in told if change), None)


def _row(lake: Lake, table: str, opened: DeltaTable, before: Seal | None) -> dict[str, Any]:
    path = _path(lake, table)
    files = files_at(path, opened)
    rows = rows_of_dates(files)
    return {
        "table": table,
        "table_id": str(opened.metadata().id),
        "version": opened.version(),
        "changed_version": opened.version() if before is None else before["changed_version"],
        "rows_by_date": json.dumps(rows, sort_keys=True),
        "rows": sum(rows.values()),
        "files_hash": hash_of(files),
        "mark": _mark(lake, path, opened.version()),
        "recorded_at": datetime.now(UTC),
    }


def _write(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        upsert_ops(lake, "tables", ("table",), rows)


def reseal(lake: Lake, table: str, is_ours: IsOurs = nobody_is_ours) -> None:
    """Seal `table` once more after a commit by a job that is not to judge it, such as its care.

    One that was never sealed stays so; nor is one sealed that has changed: whoever builds on it
    is to find that out.
    """
    sealed = read_seal(lake, table)
    if sealed is not None:
        _seal_again(lake, sealed, table_to_read(_path(lake, table)), is_ours)


def seal_ours(lake: Lake, table: str, is_ours: IsOurs) -> None:
    """Seal `table` after commits of ours, also one that was never sealed, but not what others have changed.

    One that is not there, or whose newest version is sealed, stays as it is.
    """
    if not _is_there(lake, table):
        return
    sealed, opened = read_seal(lake, table), table_to_read(_path(lake, table))
    if sealed is None:
        _write(lake, [_row(lake, table, opened, None)])
    elif not _is_of(sealed, opened):
        _seal_again(lake, sealed, opened, is_ours)


def _seal_again(lake: Lake, sealed: Seal, opened: DeltaTable, is_ours: IsOurs) -> None:
    """What is judged is what is sealed, whatever comes meanwhile."""
    has_other_rows = False

    def is_noted(commit_info: Mapping[str, Any], actions: Actions) -> bool:
        nonlocal has_other_rows
        has_other_rows = True  # only commits that change data are asked of
        return is_ours(commit_info, actions)

    if changed_since(lake, sealed, is_noted, opened=opened) is None:
        _write(lake, [_row(lake, sealed["table"], opened, None if has_other_rows else sealed)])


def seal_gone(lake: Lake, table: str) -> None:
    """Take the seal of a table away that is lost, and that whoever does this makes anew, or does without."""
    sealed = read_seal(lake, table)
    if sealed is not None:
        _write(lake, [{**sealed, "table_id": GONE, "recorded_at": datetime.now(UTC)}])


def _is_of(sealed: Seal | None, opened: DeltaTable) -> bool:
    if sealed is None:
        return False
    known = (sealed["table_id"], sealed["version"])
    return known == (str(opened.metadata().id), opened.version())


def read_seal(lake: Lake, table: str) -> Seal | None:
    """The row of `ops/tables`; None when `table` was never sealed."""
    return read_seals(lake, [table]).get(table)


def read_seals(lake: Lake, tables: Sequence[str]) -> dict[str, Seal]:
    """The rows of `ops/tables` of those of `tables` that were sealed, by table and in their order."""
    rows = read_ops(lake, "tables")
    rows = rows.filter(pc.is_in(rows["table"], pa.array(tables, pa.string())))
    newest = {row["table"]: row for row in rows.sort_by("recorded_at").to_pylist()}
    seals = {table: newest[table] for table in tables if table in newest}
    return {table: row for table, row in seals.items() if row["table_id"] != GONE}


def what_changed(lake: Lake, table: str, is_ours: IsOurs = nobody_is_ours) -> str | None:
    """How `table` is not what our commits have made it, in one sentence; None when it is."""
    sealed = read_seal(lake, table)
    return None if sealed is None else changed_since(lake, sealed, is_ours)


def _is_there(lake: Lake, table: str) -> bool:
    return lake.is_delta_table(_path(lake, table))


def _mark(lake: Lake, path: str, version: int) -> str | None:
    mark = commit_info(_actions(lake, path, version)).get("userMetadata")
    return None if mark is None else str(mark)


def _actions(lake: Lake, path: str, version: int) -> list[dict[str, Any]]:
    try:
        return read_actions(lake, path, version)
    except FileNotFoundError:
        return []


def _path(lake: Lake, table: str) -> str:
    return f"{lake.root}/{table}"
