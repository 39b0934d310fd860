"""A table without its past: its newest version stays, and nothing by which an older one could be read.

Older files, the change feed, and the log: commits hold predicates and the least and largest values of
each column, and so do older checkpoints. What a writer beside us has not committed yet is left alone.
"""

import re
from datetime import UTC, datetime, timedelta
from itertools import chain
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow import fs

from include.lake.delta_log import delta_table, read_actions
from include.lake.ops import despite_others
from include.lake.paths import Lake
from include.lake.table import Table

CLEANED = "stateful.historyCleaned"
VERSIONED = re.compile(r"\.?([0-9]{20})\.")
# Older, and in no version: left by a writer that died.
DEAD_AFTER = timedelta(hours=1)


def forget_history(lake: Lake, path: str, is_alone: bool = False) -> None:
    """Delete all of the table at `path` that its newest version does not need.

    Killed anywhere, it is done again as a whole. Who reads an older version meanwhile fails.
    `is_alone`: nobody writes to it, so what no version has was left by a writer that died.
    """
    committed = _committed(lake, path)
    # Of a commit with rows to take away, their values are in the log: one comes after it.
    told, same = {CLEANED: datetime.now(UTC).isoformat()}, Table.open(lake, path).same_record()
    despite_others(
        lambda: delta_table(path).alter.set_table_properties(
            told, raise_if_not_exists=False, commit_properties=same
        )
    )
    table = delta_table(path)
    table.create_checkpoint()
    # The log last: it alone names the files of the change feed, which a repetition is to find.
    _delete_files(lake, path, committed, timedelta(0) if is_alone else DEAD_AFTER)
    _clean_log(lake, path, table.version())


def _committed(lake: Lake, path: str) -> set[str]:
    """The files, below the table, that any version in its log has or had."""
    found: set[str] = set()
    for info in _files(lake, f"{path}/_delta_log"):
        versioned = VERSIONED.match(info.base_name)
        if info.base_name.endswith(".json") and versioned:
            actions = read_actions(lake, path, int(versioned[1])) or []
            parts = (action.get(kind) for action in actions for kind in ("add", "remove", "cdc"))
            found |= {unquote(part["path"]) for part in parts if part}
        elif info.base_name.endswith(".parquet"):
            found |= _of_checkpoint(lake, info.path)
    return found


def _of_checkpoint(lake: Lake, name: str) -> set[str]:
    found: set[str] = set()
    with lake.filesystem.open_input_file(name) as file:
        opened = pq.ParquetFile(file)
        kinds = sorted({"add", "remove"} & set(opened.schema_arrow.names))
        for batch in opened.iter_batches(columns=kinds):
            for row in chain.from_iterable(batch[kind].to_pylist() for kind in kinds):
                found |= {unquote(row["path"])} if row and row.get("path") else set()
    return found


def _clean_log(lake: Lake, path: str, version: int) -> None:
    for info in _files(lake, f"{path}/_delta_log"):
        versioned = VERSIONED.match(info.base_name)
        is_older = versioned is not None and int(versioned[1]) < version
        # Hadoop's sum of the one before; what older checkpoints are in parts.
        if is_older or info.base_name == "._last_checkpoint.crc" or "/_sidecars/" in info.path:
            lake.filesystem.delete_file(info.path)


def _delete_files(lake: Lake, path: str, committed: set[str], dead_after: timedelta) -> None:
    root = lake.path_in_filesystem(path)
    adds = delta_table(path).get_add_actions(flatten=True)
    live = {unquote(name) for name in adds["path"].to_pylist()}
    dead_before = datetime.now(UTC) - dead_after
    for info in _files(lake, path):
        name = info.path.removeprefix(f"{root}/")
        if name.startswith("_delta_log/") or name in live or _sums(name) in live:
            continue
        if name in committed or _sums(name) in committed or info.mtime < dead_before:
            lake.filesystem.delete_file(info.path)


def _sums(name: str) -> str:
    """The file that a checksum file of Hadoop is of."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.removeprefix('.').removesuffix('.crc')}"


def _files(lake: Lake, path: str) -> list[fs.FileInfo]:
    selector = fs.FileSelector(lake.path_in_filesystem(path), recursive=True, allow_not_found=True)
    found = lake.filesystem.get_file_info(selector)
    return [info for info in found if info.type == fs.FileType.File]
