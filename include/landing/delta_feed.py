"""The change data feed of somebody else's Delta table: the rows that a version inserts, beside what it
deletes and updates.

A version has files of changes, which then are all that it changes; or it adds and removes whole files.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable as OpenTable

from include.lake.delta_log import changes_data
from include.landing.arrivals import OriginError
from include.landing.delta_commits import Actions, bodies

FOLDER = "_change_data/"
CHANGE = "_change_type"
PROPERTY = "delta.enableChangeDataFeed"


def inserted_files(table: OpenTable, uri: str, actions: Actions) -> dict[str, int]:
    """The files with the rows that a version inserts, and their bytes. `table`: as of that version.

    OriginError where it does not tell inserted rows from others.
    """
    at = f"version {table.version()} of {uri}"
    if table.metadata().configuration.get(PROPERTY, "false").lower() != "true":
        raise OriginError(
            f"{at} deletes or updates rows, and was made without a change data feed ({PROPERTY}): "
            'on_change="ignore" of the origin passes it over, and can be set back after that run'
        )
    if changes := bodies(actions, "cdc"):
        return {unquote(change["path"]): change["size"] for change in changes}
    removed = {remove["path"]: remove for remove in bodies(actions, "remove")}
    adds = [add for add in bodies(actions, "add") if add.get("dataChange", True)]
    # With a deletion vector alone that is another, a file has fewer rows than before.
    new = [add for add in adds if add["path"] not in removed]
    if (
        (adds and is_restore(actions))
        or any(_deleted(add) < _deleted(removed.get(add["path"])) for add in adds)
        or any(map(_deleted, new))  # to read it whole would take what is deleted in it
    ):
        raise OriginError(
            f"{at} takes deleted rows, or files with some, back (RESTORE), which is not read: "
            'on_change="ignore" of the origin passes it over, and can be set back after that run'
        )
    return {unquote(add["path"]): add["size"] for add in new}


def is_restore(actions: Actions) -> bool:
    """Whether a version takes files back that the table had before: no row of them is a new one."""
    infos = bodies(actions, "commitInfo")
    is_named = any(info.get("operation") == "RESTORE" for info in infos)
    return is_named and changes_data(actions)


def _deleted(file: Mapping[str, Any] | None) -> int:
    """How many rows of a file its deletion vector takes away."""
    return int(((file or {}).get("deletionVector") or {}).get("cardinality", 0))


def is_of_feed(path: str) -> bool:
    """Whether a file has changes, in place of rows."""
    return path.startswith(FOLDER)


def inserted_rows(content: bytes) -> pa.Table:
    """Those of a file of changes; what Arrow raises for one that is damaged."""
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    rows = file.read()
    if CHANGE not in rows.column_names:
        raise pa.ArrowInvalid(f"it has no column {CHANGE}")
    runs = [rows.slice(first, count) for first, count in _runs_of_inserts(rows[CHANGE])]
    return pa.concat_tables([rows.slice(0, 0), *runs]).drop_columns([CHANGE])


def _runs_of_inserts(kinds: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """First row and number of rows. Not to filter by: of texts as delta-rs writes them (string_view)
    Arrow takes none out."""
    is_insert = pc.fill_null(pc.equal(kinds.cast(pa.string()), "insert"), False).to_numpy()
    edges = np.flatnonzero(np.diff(is_insert.astype(np.int8), prepend=0, append=0)).tolist()
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        yield first, end - first
