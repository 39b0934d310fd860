"""The record of each table after our last commit to it (`ops/tables`), and the changes made since by others.

A table that was put back from an older copy, or whose newest commit a power cut has emptied, looks
like any other, and jobs would go on from it without a word. So a job *seals* a table after each
of its commits, and asks `what_changed` before it builds on it: in milliseconds, without a JVM.

A seal holds the table's id, its version, and the names of that version's data files (as a hash;
names are unique). Later commits are gone through one by one: those that change no data are fine
(OPTIMIZE, VACUUM, a property), and so are those that `is_ours` accepts, as a job may have died
between its commit and the seal. A table without a seal is believed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from include.lake.delta_log import (
    changes_data,
    commit_info,
    find_actions,
    first_line,
    is_of_machine,
    rows_in,
    rows_of,
    table_to_read,
    unreadable_log,
)
from include.lake.ops import read_ops, upsert_ops
from include.lake.paths import Lake
from include.text_table import counted

Actions = Sequence[Mapping[str, Any]]
# Whether a commit that changes data is one of ours, by its commitInfo and all its actions.
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


def changed_since(
    lake: Lake,
    sealed: Mapping[str, Any],
    is_ours: IsOurs,
    opened: DeltaTable | None = None,
) -> str | None:
    """How a table is not what our commits have made it, by its seal; None when it is.

    `opened`: the version that is judged; None: the newest.
    """
    path = _path(lake, sealed["table"])
    if opened is None and not lake.is_delta_table(path):
        return f"{path} is missing, but it had version {sealed['version']} after our last commit"
    try:
        table = table_to_read(path) if opened is None else opened
        return _what_changed(lake, path, table, sealed=sealed, is_ours=is_ours)
    except (DeltaError, OSError, ValueError) as error:
        if is_of_machine(error):
            raise
        return unreadable_log(path, first_line(error))


def _what_changed(
    lake: Lake,
    path: str,
    table: DeltaTable,
    sealed: Mapping[str, Any],
    is_ours: IsOurs,
) -> str | None:
    version, now = int(sealed["version"]), table.version()
    table_id = str(table.metadata().id)
    if table_id != sealed["table_id"]:
        return f"{path} is another table (id {table_id}, not {sealed['table_id']}) than before"
    if now < version:
        return f"{path} is at version {now}, older than {version}, which our last commit made it"
    commits = _commits(lake, path, version + 1, now)
    known = table if now == version else _at(path, version)
    if known is None or len(commits) < now - version:
        return _after_clean_up(path, sealed, commits, now=now, is_ours=is_ours)
    files = files_at(path, known)
    if hash_of(files) != sealed["files_hash"]:
        return _other_content(lake, path, sealed, files=files)
    if column := _lost_column(known, table):
        return (
            f"{path} has no column {column} any more, which it had at version {version}, after our "
            "last commit"
        )
    return _foreign_commit(path, files, commits, is_ours=is_ours)


def _at(path: str, version: int) -> DeltaTable | None:
    """A version of the table; None where the log and its checkpoints give it no more."""
    try:
        return table_to_read(path, version=version)
    except (DeltaError, OSError) as error:
        if is_of_machine(error):
            raise
        return None


def _commits(lake: Lake, path: str, first: int, now: int) -> dict[int, Actions]:
    """The commits up to `now`, from `first` on or from where all are in the log."""
    commits: dict[int, Actions] = {}
    for version in range(now, first - 1, -1):
        if (actions := find_actions(lake, path, version)) is None:
            break
        commits[version] = actions
    return dict(sorted(commits.items()))


def _after_clean_up(
    path: str,
    sealed: Mapping[str, Any],
    commits: Mapping[int, Actions],
    now: int,
    is_ours: IsOurs,
) -> str | None:
    """By rows alone where Delta has deleted the commits: more is not known of them."""
    loadable = (_at(path, version) for version in range(now - len(commits), now))
    table = next(filter(None, loadable), None) or table_to_read(path, version=now)
    known, files = table.version(), files_at(path, table)
    before, after = json.loads(sealed["rows_by_date"]), rows_of_dates(files)
    if difference := _difference(before, after):
        return (
            f"{path} has other rows at version {known} than at {sealed['version']}, after our "
            f"last commit ({difference}); what came between is no longer in its log"
        )
    later = {version: actions for version, actions in commits.items() if version > known}
    return _foreign_commit(path, files, later, is_ours=is_ours)


def _other_content(lake: Lake, path: str, sealed: Mapping[str, Any], files: Files) -> str:
    version = sealed["version"]
    cause = f"version {version} of {path} is not what our last commit made it"
    if find_actions(lake, path, version) == []:
        cause = f"commit {version} of {path} is empty, as after a power cut"
    difference = _difference(json.loads(sealed["rows_by_date"]), rows_of_dates(files))
    return f"{cause}: {difference or 'as many rows, in other files'}"


def _lost_column(before: DeltaTable, now: DeltaTable) -> str | None:
    """One that somebody has dropped, renamed or given another type, which are no commits of data."""
    known, has = (pa.schema(table.schema().to_arrow()) for table in (before, now))
    kinds = {field.name: field.type for field in has}
    lost = (field for field in known if kinds.get(field.name) != field.type)
    return next((f"{field.name} {field.type}" for field in lost), None)


def _foreign_commit(
    path: str, files: Files, commits: Mapping[int, Actions], is_ours: IsOurs
) -> str | None:
    """The first of `commits` that changes data and is not ours, `files` being those before them."""
    for version, actions in commits.items():
        if not actions:
            return f"commit {version} of {path} is empty, as after a power cut"
        info, before = commit_info(actions), rows_of_dates(files)
        _apply(path, files, actions)
        difference = _difference(before, rows_of_dates(files))
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
            date = values[0] if values else UNPARTITIONED
            files[add["path"]] = DataFile(date, rows_of(path, add))


def _who(info: Mapping[str, Any]) -> str:
    names = ("operation", "userName", "engineInfo")
    known = [str(info[name]) for name in names if info.get(name)]
    if at := info.get("timestamp"):
        known.append(datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds"))
    return ", ".join(known) or "it does not say who made it"


def files_at(path: str, table: DeltaTable) -> Files:
    partition = [f"partition.{name}" for name in table.metadata().partition_columns]
    adds = pa.table(table.get_add_actions(flatten=True))
    names = adds["path"].to_pylist()
    values = adds[partition[0]].to_pylist() if partition else [UNPARTITIONED] * len(names)
    has_rows = "num_records" in adds.column_names
    rows = adds["num_records"].to_pylist() if has_rows else [None] * len(names)
    return {
        name: DataFile(
            NO_VALUE if value is None else str(value),
            rows_in(path, name) if count is None else count,
        )
        for name, value, count in zip(names, values, rows, strict=True)
    }


def rows_of_dates(files: Files) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for file in files.values():
        rows[file.date] += file.rows
    return dict(rows)


def hash_of(files: Files) -> str:
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Which dates have other counts of rows, in words; empty when none has."""
    dates = sorted(d for d in {*before, *after} if before.get(d, 0) != after.get(d, 0))
    words = [
        f"{f'on {d} ' if d else ''}{counted(after.get(d, 0), 'row')} and not {before.get(d, 0):,}"
        for d in dates[:DATES_NAMED]
    ]
    more = len(dates) - DATES_NAMED
    return ", ".join(words) + (f", and {counted(more, 'more date')}" if more > 0 else "")


def _path(lake: Lake, table: str) -> str:
    return f"{lake.root}/{table}"


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
        _seal_again(lake, sealed, table_to_read(_path(lake, table)), is_ours=is_ours)


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
        _seal_again(lake, sealed, opened, is_ours=is_ours)


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


class RangeChange(NamedTuple):
    """Rows of a range before and after, and how many of them differ."""

    before: int
    after: int
    removed: int
    added: int


NO_CHANGE = RangeChange(0, 0, 0, added=0)
