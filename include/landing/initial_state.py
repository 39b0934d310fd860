"""Where a stream's initial state is, and what names its content: read without Spark.

It is savepoint 0: the states of keys as of an instant, given by a user, as a Delta table or a
JSON file. `spark_jobs/tables/initial_state.py` reads its rows.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from include.fold.admission import EPOCH, LAST_INSTANT_US, MICROSECOND
from include.fold.definition import KeyedFold
from include.lake.delta_log import first_line, read_actions
from include.lake.open_delta import delta_table
from include.lake.paths import Lake
from include.landing.initial_state_file import document_fingerprint, read_document
from include.settings import SettingsError


class InitialStatePath(NamedTuple):
    path: str
    is_table: bool


def find_initial_state(lake: Lake, stream: str) -> InitialStatePath | None:
    table, file = lake.initial_state(stream), lake.initial_state_file(stream)
    there = [path for path in (table, file) if _type(lake, path) != fs.FileType.NotFound]
    if len(there) == 2:
        raise SettingsError(
            f"there are two initial states, {table} and {file}: take one away",
            code="wrong_initial_state",
            subject=table,
        )
    if not there:
        return None
    if there == [table] and not lake.is_delta_table(table):
        # To pass over it would start the stream from nothing, and nobody would know.
        raise SettingsError(
            f"initial state {table} is no Delta table: make it one, or give a file {file}",
            code="wrong_initial_state",
            subject=table,
        )
    if there == [file] and _type(lake, file) != fs.FileType.File:
        raise SettingsError(
            f"initial state {file} is a folder: make it one JSON file",
            code="wrong_initial_state",
            subject=file,
        )
    return InitialStatePath(there[0], is_table=there == [table])


def _type(lake: Lake, path: str) -> fs.FileType:
    return lake.filesystem.get_file_info(lake.path_in_filesystem(path)).type


def read_fingerprint(lake: Lake, stream: str, pinned: str | None = None) -> str | None:
    """What names the content of the stream's initial state; None when there is no initial state.

    `pinned` is the fingerprint of an earlier run, if there was one: Delta deletes a table's
    old commits in time, and what is left of them may then not tell when its rows last
    changed. It is still `pinned` where nothing that is left says otherwise.
    Raises SettingsError when the file or table cannot be read.
    """
    found = find_initial_state(lake, stream)
    if found is None:
        return None
    if not found.is_table:
        return document_fingerprint(read_document(lake, found.path))
    return table_fingerprint(lake, found.path, newest_version(found.path), pinned)


def check_as_of(path: str, as_of_us: int) -> None:
    """SettingsError for an initial state of the future."""
    as_of = EPOCH + as_of_us * MICROSECOND
    if as_of > datetime.now(UTC):
        # Every row until then would be left out, and each run would look well.
        raise SettingsError(
            f"initial state {path}: as_of {as_of} is in the future: mend it",
            code="wrong_initial_state",
            subject="as_of",
        )


def default_timeout_us(path: str, as_of_us: int, fold: KeyedFold) -> int | None:
    """The timeout of rows that name none; SettingsError when it is no instant."""
    if fold.initial_timeout is None:
        return None
    default_us = as_of_us + fold.initial_timeout // MICROSECOND
    if not as_of_us < default_us <= LAST_INSTANT_US:
        raise SettingsError(
            f"initial state {path}: as_of is {EPOCH + as_of_us * MICROSECOND}, and the "
            f"stream's initial_timeout of {fold.initial_timeout} after it is no timeout: it must "
            "be after as_of, and not beyond the year 9999",
            code="wrong_initial_state",
            subject="as_of",
        )
    return default_us


def newest_version(path: str) -> int:
    """The table's newest version; SettingsError when there is none that can be read."""
    return int(_log(path).version())


def table_fingerprint(lake: Lake, path: str, version: int, pinned: str | None = None) -> str:
    """Names the rows of `version`: the table, and the version in which they last changed.

    OPTIMIZE and VACUUM change no rows. `pinned`: see `read_fingerprint`.
    """
    table_id = str(_log(path).metadata().id)
    while version > 0:
        changed = _changes_rows(lake, path, version)
        if changed is None and pinned is not None and _names_earlier(pinned, table_id, version):
            return pinned
        if changed is None or changed:
            break
        version -= 1
    return f"{table_id}@{version}"


def _log(path: str) -> DeltaTable:
    try:
        return delta_table(path)
    except DeltaError as error:
        raise SettingsError(
            f"initial state {path} cannot be read as a Delta table: {first_line(error)}",
            code="wrong_initial_state",
            subject=path,
        ) from error


def _names_earlier(pinned: str, table_id: str, version: int) -> bool:
    pinned_id, _, pinned_version = pinned.rpartition("@")
    return pinned_id == table_id and int(pinned_version) <= version


def _changes_rows(lake: Lake, path: str, version: int) -> bool | None:
    """Whether the commit added or removed rows; None when Delta has deleted it by now."""
    try:
        commit = read_actions(lake, path, version)
    except FileNotFoundError:
        return None
    actions = (item for action in commit for item in action.items())
    # A DELETE of a whole file only removes.
    return any(name in ("add", "remove") and body.get("dataChange") for name, body in actions)
