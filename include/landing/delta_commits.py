"""The log of somebody else's Delta table: its commits, and which of them can be read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable as OpenTable
from deltalake.exceptions import DeltaError

from include.lake.delta_log import first_line, is_of_machine
from include.lake.open_delta import delta_table
from include.lake.paths import files_of
from include.landing.arrivals import OriginError

Actions = Sequence[Mapping[str, Any]]
MAPPING = "delta.columnMapping.mode"


class LostCommitError(OriginError):
    """The commit of a version is gone, or damaged."""


class CleanedUpError(LostCommitError):
    """It is gone."""


def open_table(uri: str, version: int | None = None) -> OpenTable:
    """The table, as of a version; OriginError when there is none, or it cannot be read."""
    try:
        return delta_table(uri, version=version)
    except (DeltaError, OSError) as error:
        at = "" if version is None else f" as of version {version}"
        raise OriginError(
            f"the Delta table {uri}{at} cannot be read: {first_line(error)}",
            code="unreadable_input",
        ) from error


def table_at(uri: str, version: int) -> OpenTable | None:
    """The table, as of a version; None where its log has that no more.

    OriginError where a machine fails.
    """
    try:
        return delta_table(uri, version=version)
    except (DeltaError, OSError) as error:
        if isinstance(error, OSError) or is_of_machine(error):
            raise OriginError(
                f"{uri} cannot be read: {first_line(error)}", code="unreadable_input"
            ) from error
        return None


def added_files(table: OpenTable) -> dict[str, dict[str, Any]]:
    """The files of a version of the table by path: their bytes, and values of partitions."""
    actions = pa.table(table.get_add_actions(flatten=False))
    return {unquote(row["path"]): row for row in actions.to_pylist()}


def log_file(version: int) -> str:
    """The commit of a version, below the table."""
    return f"_delta_log/{version:020}.json"


def actions_of(uri: str, version: int) -> list[dict[str, Any]]:
    """Of the commit of a version; LostCommitError when it is not there any more, or damaged.

    Behind a checkpoint nobody else reads it: a damaged one would lose its rows without a word.
    """
    try:
        with files_of(uri).open_input_stream(log_file(version)) as file:
            content = bytes(file.read())
    except FileNotFoundError as error:
        raise CleanedUpError(f"the commit of version {version} of {uri} was cleaned up") from error
    if actions := _actions_in(content):
        return actions
    raise LostCommitError(f"the commit of version {version} of {uri} is damaged")


def _actions_in(content: bytes) -> list[dict[str, Any]]:
    """None of them where one is not whole."""
    try:
        actions = [json.loads(line) for line in content.decode().split("\n") if line]
    except ValueError:
        return []
    return actions if all(isinstance(action, dict) for action in actions) else []


def is_whole(uri: str, version: int) -> bool:
    """Whether the commit of a version is there, and can be read."""
    try:
        actions_of(uri, version)
    except LostCommitError:
        return False
    return True


def bodies(actions: Actions, kind: str) -> list[Mapping[str, Any]]:
    """Of the actions of one kind."""
    return [action[kind] for action in actions if kind in action]


def maps_columns(configuration: Mapping[str, str]) -> bool:
    """Whether columns have other names in the files that are written under it."""
    return configuration.get(MAPPING, "none") != "none"


def is_mapped_at(uri: str, version: int, actions: Actions, was_mapped: bool | None) -> bool:
    """Whether files that a version adds are of mapped columns. `was_mapped`: those of the version
    before it, where that is known."""
    if metadata := bodies(actions, "metaData"):
        return maps_columns(metadata[-1].get("configuration") or {})
    if was_mapped is None:
        return maps_columns(open_table(uri, version).metadata().configuration)
    return was_mapped
