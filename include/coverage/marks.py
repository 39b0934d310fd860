"""What a commit to a stream's table says of itself, in the table's own log.

So a kill between the commit and the ledger loses nothing: the next writer finds the mark and
enters it; and a ledger that is lost is made again from the marks.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyarrow import fs

from include.coverage.entries import Entry
from include.lake.delta_log import changes_data, commit_info, read_actions, table_to_read
from include.lake.paths import Lake

MARK = "coverage"


def mark_of(entry: Entry) -> str:
    """The text for a commit's userMetadata."""
    known = {name: value for name, value in asdict(entry).items() if value is not None}
    return json.dumps({MARK: known})


def entry_in(commit: Mapping[str, Any]) -> Entry | None:
    """The entry that a commit (its commitInfo) names; None for one that is not ours."""
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
        known = metadata[MARK]
        absent = dict.fromkeys(("from_us", "until_us", "run_id", "bronze_id"))
        return Entry(**(absent | known | {"codes": tuple(known["codes"])}))
    except (ValueError, KeyError, TypeError):
        return None  # someone else's commit, with a text of their own


def is_marked(commit: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a commit is one of ours: for `table_seal.what_changed`."""
    return entry_in(commit) is not None


def marks_since(lake: Lake, table: str, version: int) -> Iterator[Entry | None]:
    """Of each commit after `version` that changes data, in order, its entry; None: not ours.

    What the log has no more is passed over: only begin where it has all, or with None.
    """
    newest = table_to_read(table).version()
    for number in range(max(version + 1, oldest_commit(lake, table)), newest + 1):
        actions = read_actions(lake, table, number)
        if changes_data(actions):
            yield entry_in(commit_info(actions))


def oldest_commit(lake: Lake, table: str) -> int:
    """The oldest version whose commit the table's log still has."""
    selector = fs.FileSelector(lake.path_in_filesystem(f"{table}/_delta_log"))
    names = (info.base_name for info in lake.filesystem.get_file_info(selector))
    found = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return min((int(name) for name in found if name.isdecimal()), default=0)
