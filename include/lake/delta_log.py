"""The commits of a Delta table, read from its log without a JVM."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from include.fold.instants import EPOCH
from include.lake.paths import Lake


def read_actions(lake: Lake, table: str, version: int) -> list[dict[str, Any]]:
    """The actions of a table's commit, in order; FileNotFoundError when it was cleaned up."""
    path = lake.path_in_filesystem(f"{table}/_delta_log/{version:020}.json")
    with lake.filesystem.open_input_stream(path) as file:
        text = bytes(file.read()).decode()
    # Only "\n" ends an action: splitlines() also cuts at U+2028 and the like, which stand
    # unescaped in the log when a row of the table has them.
    return [json.loads(line) for line in text.split("\n") if line]


def commit_hash(lake: Lake, table: str, version: int) -> str | None:
    """What tells a commit from any other that may have its number; None when it was cleaned up."""
    path = lake.path_in_filesystem(f"{table}/_delta_log/{version:020}.json")
    try:
        with lake.filesystem.open_input_stream(path) as file:
            return hashlib.sha256(bytes(file.read())).hexdigest()[:16]
    except FileNotFoundError:
        return None


def commit_info(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What a commit says of itself; empty for one that says nothing."""
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def adds_data(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a commit adds rows: what a stream reads. OPTIMIZE and the like do not."""
    return any(action.get("add", {}).get("dataChange", False) for action in actions)


def changes_data(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a commit adds or takes away rows; one that does not say counts as if it did."""
    parts = (action.get(kind) for action in actions for kind in ("add", "remove"))
    return any(part.get("dataChange", True) for part in parts if part)


def made_at(actions: Sequence[Mapping[str, Any]]) -> datetime:
    """When a commit was made, by its writer's clock; one that does not say is as old as can be."""
    millis = [
        action["commitInfo"].get("timestamp", 0) for action in actions if "commitInfo" in action
    ]
    return EPOCH + timedelta(milliseconds=max(millis, default=0))
