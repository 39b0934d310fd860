"""Tables opened to be read from: once, for as long as their logs stay as they are.

A job asks some ten tables, and each of them several times. To open one is to read its log from the
last checkpoint on: milliseconds on a disk, and in a store some twenty requests, one after another.
"""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow import fs

from include.lake.open_delta import delta_table
from include.lake.paths import files_of

KEPT = 64  # of a large table it is some megabytes
_Log = frozenset[tuple[str, int, int]]  # of each file: name, bytes, and when it was written


class _Open(NamedTuple):
    log: _Log
    table: DeltaTable


_open: OrderedDict[tuple[str, int | None], _Open] = (
    OrderedDict()
)  # by path and version; None: newest
_keeping = Lock()


def table_to_read(path: str, version: int | None = None) -> DeltaTable:
    """What `delta_table` opens, shared by all that ask while the log has the same files.

    So whatever was committed, put back or cleaned up since is seen. Never to be written with: a
    commit would move it on for all that hold it.
    """
    log = _log_of(path)
    known = _open.get((path, version))
    # A version stays what it is while more comes, and reads on in the files that it came from.
    if known is None or not (known.log == log or (version is not None and known.log <= log)):
        # Listed before it is opened: what is committed between is no file of this log.
        known = _Open(log, delta_table(path, version))
        if log:
            _keep(path, known.table.version(), known)
    if log:
        _keep(path, version, known)
    return known.table


def _keep(path: str, version: int | None, opened: _Open) -> None:
    with _keeping:  # Airflow's pages ask from several threads
        _open[path, version] = opened
        _open.move_to_end((path, version))
        while len(_open) > KEPT:
            _open.popitem(last=False)


def _log_of(path: str) -> _Log:
    """But for the hint where to begin, which is written anew; empty where it cannot be listed."""
    try:
        files = files_of(path).get_file_info(fs.FileSelector("_delta_log"))
    except OSError:
        return frozenset()  # `delta_table` says so
    named = ((file.base_name, file.size or 0, file.mtime_ns or 0) for file in files)
    return frozenset(file for file in named if file[0] != "_last_checkpoint")


def dataset_of(table: str) -> ds.Dataset:
    """The newest version of the Delta table at `table`."""
    return table_to_read(table).to_pyarrow_dataset(filesystem=files_of(table))


def dataset_without_bounds(table: str) -> ds.Dataset:
    """The same, without what the log says of each file's values: to make that costs several times
    what reading a table does that is small."""
    opened = table_to_read(table)
    bare = opened.to_pyarrow_dataset(filesystem=files_of(table), schema=pa.schema([]))
    return bare.replace_schema(pa.schema(opened.schema().to_arrow()))
