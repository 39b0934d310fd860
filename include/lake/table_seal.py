"""What each table was after our last commit to it, and whether it is still that: `ops/tables`.

A table that was put back from an older copy, or whose newest commit a power cut has emptied, looks
like any other, and jobs would go on from it without a word. So a job *seals* a table after each
of its commits, and asks `what_changed` before it builds on it: in milliseconds, without a JVM.

A seal holds the table's id, its version, and the names of that version's data files (as a hash;
names are unique). Later commits are gone through one by one: those that change no data are fine
(OPTIMIZE, VACUUM, a property), and so are those that `is_ours` accepts, as a job may have died
between its commit and the seal. A table without a seal is believed: lakes of 0.5 have none.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.lake.delta_log import (
    changes_data,
    commit_info,
    first_line,
    read_actions,
    unreadable_log,
)
from include.lake.ops import read_ops, upsert_ops
from include.lake.paths import Lake, files_of

Actions = Sequence[Mapping[str, Any]]
# Whether a commit is one of ours, by its commitInfo and all its actions.
IsOurs = Callable[[Mapping[str, Any], Actions], bool]
UNPARTITIONED = ""
NO_VALUE = "null"  # of the partition column
DATES_NAMED = 5


@dataclass(frozen=True)
class DataFile:
    """What counts of a data file: where its rows belong, and how many they are."""

    date: str
    rows: int


Files = dict[str, DataFile]  # by path, below the table


def nobody_is_ours(commit_info: Mapping[str, Any], actions: Actions) -> bool:
    """For tables of which every commit is sealed in the same breath."""
    return False


def rows_by_date(lake: Lake, table: str) -> dict[str, int]:
    """The rows of the newest version of `table` (such as bronze/signals) by partition."""
    return _count(_files(_path(lake, table), DeltaTable(_path(lake, table))))


def seal(lake: Lake, table: str, same_rows: bool = False) -> None:
    """Record what `table` is now: to be called after each commit of ours, of any kind.

    `same_rows`: none has changed since it was sealed last.
    """
    path, before = _path(lake, table), read_seal(lake, table) if same_rows else None
    opened = DeltaTable(path)
    files = _files(path, opened)
    rows = _count(files)
    row = {
        "table": table,
        "table_id": str(opened.metadata().id),
        "version": opened.version(),
        "changed_version": opened.version() if before is None else before["changed_version"],
        "rows_by_date": json.dumps(rows, sort_keys=True),
        "rows": sum(rows.values()),
        "files_hash": _hash(files),
        "mark": _mark(lake, path, opened.version()),
        "recorded_at": datetime.now(UTC),
    }
    upsert_ops(lake, "tables", ("table",), row)


def reseal(lake: Lake, table: str, is_ours: IsOurs = nobody_is_ours) -> None:
    """Seal `table` once more after a commit by a job that is not to judge it, such as its care.

    One that was never sealed stays so; nor is one sealed that has changed: whoever builds on it
    is to find that out.
    """
    sealed = read_seal(lake, table)
    if sealed is None:
        return
    same_rows = changed_since(lake, sealed, nobody_is_ours) is None
    if same_rows or changed_since(lake, sealed, is_ours) is None:
        seal(lake, table, same_rows)


def is_sealed(lake: Lake, table: str) -> bool:
    """Whether the seal is of the table's newest version."""
    sealed = read_seal(lake, table)
    if sealed is None:
        return False
    opened = DeltaTable(_path(lake, table))
    known = (sealed["table_id"], sealed["version"])
    return known == (str(opened.metadata().id), opened.version())


def read_seal(lake: Lake, table: str) -> dict[str, Any] | None:
    """The row of `ops/tables`; None when `table` was never sealed."""
    rows: list[dict[str, Any]] = read_ops(lake, "tables", {"table": table}).to_pylist()
    return max(rows, key=lambda row: row["recorded_at"], default=None)


def what_changed(lake: Lake, table: str, is_ours: IsOurs = nobody_is_ours) -> str | None:
    """How `table` is not what our commits have made it, in one sentence; None when it is."""
    sealed = read_seal(lake, table)
    return None if sealed is None else changed_since(lake, sealed, is_ours)


def changed_since(lake: Lake, sealed: Mapping[str, Any], is_ours: IsOurs) -> str | None:
    """The same, of the table that `sealed` is the row of."""
    path = _path(lake, sealed["table"])
    if not lake.is_delta_table(path):
        return f"{path} is missing, but it had version {sealed['version']} after our last commit"
    try:
        opened = DeltaTable(path)
        return _what_changed(lake, path, opened, sealed, is_ours)
    except (DeltaError, OSError, ValueError) as error:
        return unreadable_log(path, first_line(error))


def _what_changed(
    lake: Lake, path: str, table: DeltaTable, sealed: Mapping[str, Any], is_ours: IsOurs
) -> str | None:
    version, now = int(sealed["version"]), table.version()
    table_id = str(table.metadata().id)
    if table_id != sealed["table_id"]:
        return f"{path} is another table (id {table_id}, not {sealed['table_id']}) than before"
    if now < version:
        return f"{path} is at version {now}, older than {version}, which our last commit made it"
    if _is_cleaned_up(lake, path, version, now):
        return _after_clean_up(lake, path, sealed, now, is_ours)
    files = _files(path, DeltaTable(path, version=version))
    if _hash(files) != sealed["files_hash"]:
        return _other_content(lake, path, sealed, files)
    return _foreign_commit(lake, path, files, range(version + 1, now + 1), is_ours)


def _is_cleaned_up(lake: Lake, path: str, version: int, now: int) -> bool:
    """Whether the table cannot be had as it was at `version`, or not all commits since."""
    if now == version:
        return False
    first = _first_commit(lake, path, version + 1, now)
    return first > version + 1 or _first_loadable(path, version, now) > version


def _first_loadable(path: str, first: int, now: int) -> int:
    """The first version, from `first` on, that the log and its checkpoints still give."""
    for version in range(first, now):
        try:
            DeltaTable(path, version=version)
        except (DeltaError, OSError):
            continue
        return version
    return now


def _first_commit(lake: Lake, path: str, first: int, now: int) -> int:
    """The first version from which on all commits up to `now` are in the log."""
    for version in range(now, first - 1, -1):
        if _actions(lake, path, version) is None:
            return version + 1
    return first


def _after_clean_up(
    lake: Lake, path: str, sealed: Mapping[str, Any], now: int, is_ours: IsOurs
) -> str | None:
    """By rows alone where Delta has deleted the commits: more is not known of them."""
    first = _first_commit(lake, path, sealed["version"] + 1, now)
    known = _first_loadable(path, first - 1, now)
    files = _files(path, DeltaTable(path, version=known))
    difference = _difference(json.loads(sealed["rows_by_date"]), _count(files))
    if difference:
        return (
            f"{path} has other rows at version {known} than at {sealed['version']}, after our "
            f"last commit ({difference}); what came between is no longer in its log"
        )
    return _foreign_commit(lake, path, files, range(known + 1, now + 1), is_ours)


def _other_content(lake: Lake, path: str, sealed: Mapping[str, Any], files: Files) -> str:
    version = sealed["version"]
    cause = f"version {version} of {path} is not what our last commit made it"
    if _actions(lake, path, version) == []:
        cause = f"commit {version} of {path} is empty, as after a power cut"
    difference = _difference(json.loads(sealed["rows_by_date"]), _count(files))
    return f"{cause}: {difference or 'as many rows, in other files'}"


def _foreign_commit(
    lake: Lake, path: str, files: Files, versions: range, is_ours: IsOurs
) -> str | None:
    """The first commit that changes data and is not ours, `files` being those before it."""
    for version in versions:
        actions = _actions(lake, path, version)
        if not actions:
            return f"commit {version} of {path} is empty, as after a power cut"
        info, before = commit_info(actions), _count(files)
        _apply(path, files, actions)
        difference = _difference(before, _count(files))
        if (changes_data(actions) or difference) and not is_ours(info, actions):
            return (
                f"commit {version} of {path} is not ours and changes its data: {_who(info)}"
                f"{f', {difference}' if difference else ''}"
            )
    return None


def _apply(path: str, files: Files, actions: Actions) -> None:
    """Take the commit's files into `files`."""
    for action in actions:
        if "remove" in action:
            files.pop(action["remove"]["path"], None)
    for action in actions:
        if add := action.get("add"):
            values = [NO_VALUE if v is None else v for v in add["partitionValues"].values()]
            rows = json.loads(add.get("stats") or "{}").get("numRecords")
            date = values[0] if values else UNPARTITIONED
            files[add["path"]] = DataFile(date, _rows_of(path, add["path"], rows))


def _who(info: Mapping[str, Any]) -> str:
    names = ("operation", "userName", "engineInfo")
    known = [str(info[name]) for name in names if info.get(name)]
    if at := info.get("timestamp"):
        known.append(datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds"))
    return ", ".join(known) or "it does not say who made it"


def _files(path: str, table: DeltaTable) -> Files:
    partition = [f"partition.{name}" for name in table.metadata().partition_columns]
    adds = pa.table(table.get_add_actions(flatten=True))
    names = adds["path"].to_pylist()
    values = adds[partition[0]].to_pylist() if partition else [UNPARTITIONED] * len(names)
    has_rows = "num_records" in adds.column_names
    rows = adds["num_records"].to_pylist() if has_rows else [None] * len(names)
    return {
        name: DataFile(NO_VALUE if value is None else str(value), _rows_of(path, name, count))
        for name, value, count in zip(names, values, rows, strict=True)
    }


def _rows_of(path: str, name: str, rows: int | None) -> int:
    """By the log, or by the file itself where its writer kept no statistics."""
    if rows is not None:
        return int(rows)
    return int(pq.read_metadata(name, filesystem=files_of(path)).num_rows)


def _count(files: Files) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for file in files.values():
        rows[file.date] += file.rows
    return dict(rows)


def _hash(files: Files) -> str:
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Which dates have other counts of rows, in words; empty when none has."""
    dates = sorted(d for d in {*before, *after} if before.get(d, 0) != after.get(d, 0))
    words = [
        f"{f'on {d} ' if d else ''}{after.get(d, 0)} rows and not {before.get(d, 0)}"
        for d in dates[:DATES_NAMED]
    ]
    more = len(dates) - DATES_NAMED
    return ", ".join(words) + (f", and {more} more dates" if more > 0 else "")


def _actions(lake: Lake, path: str, version: int) -> list[dict[str, Any]] | None:
    """Of one commit; None when it is not in the log. ValueError for one that is no JSON."""
    try:
        return read_actions(lake, path, version)
    except FileNotFoundError:
        return None


def _mark(lake: Lake, path: str, version: int) -> str | None:
    mark = commit_info(_actions(lake, path, version) or []).get("userMetadata")
    return None if mark is None else str(mark)


def _path(lake: Lake, table: str) -> str:
    return f"{lake.root}/{table}"
