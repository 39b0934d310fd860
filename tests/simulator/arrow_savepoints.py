"""Savepoints as Delta rows without a JVM, in the layout that `lake.savepoint_rows` writes with Spark.

Only the checksum is another: it is made of the values as Python has them.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs

from include.fold.admission import instant_of
from include.fold.arrow_values import conformed_table
from include.fold.definition import KeyedFold
from include.lake.columns import INSTANT, documented, without_comments
from include.lake.delta_log import delta_table, is_of_machine, open_table
from include.lake.paths import Lake, files_of
from include.savepoints.manifest import (
    Contents,
    SavepointError,
    beside_in,
    savepoint_columns,
    savepoint_table,
)
from spark_jobs.tables.savepoint_rows import CHECKED

LENGTH = 16  # bytes of a checksum


def write_rows(
    lake: Lake, states: pa.Table, fold: KeyedFold, savepoint_id: str, until_us: int
) -> str:
    """Write `states` (as of `states_to_rows`) as a savepoint's; the table's path below the lake."""
    path = savepoint_table(lake, fold)
    schema = without_comments(documented(savepoint_columns(fold)))
    columns = {
        "savepoint_id": pa.repeat(savepoint_id, states.num_rows),
        "until": pa.repeat(pa.scalar(instant_of(until_us), INSTANT), states.num_rows),
        "key": states["key"],
        "state": states["state"],
        "changed_at": states["changed_at_us"].cast(INSTANT),
        "timeout_at": states["timeout_at_us"].cast(INSTANT),
        **{column.name: states[column.name] for column in fold.beside},
    }
    rows = conformed_table(pa.table(columns), schema)
    predicate = f"savepoint_id = '{savepoint_id}'"
    write_deltalake(f"{lake.root}/{path}", rows, mode="overwrite", predicate=predicate)
    return path


def read_contents(lake: Lake, path: str, savepoint_id: str) -> Contents:
    """What the rows of a savepoint come to.

    Raises SavepointError when the table or a file is gone or damaged, any other error as it is.
    """
    named = f"savepoint {savepoint_id} of {lake.root}/{path} cannot be read"
    try:
        rows = _rows_of(lake, path, savepoint_id)
    except (TableNotFoundError, FileNotFoundError) as error:
        raise SavepointError(f"{named}: it is gone: {error}") from error
    except (pa.ArrowInvalid, OSError) as error:
        # The file system's may pass, as a store's does, which has no number, nor Arrow's on bad bytes.
        if is_of_machine(error) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise SavepointError(f"{named}: it is damaged: {error}") from error
    lines = sorted(json.dumps(list(row.values()), default=str) for row in _checked(rows))
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=LENGTH).hexdigest()
    return Contents(len(lines), f"blake2b:{digest}")


def read_rows(lake: Lake, path: str, savepoint_id: str) -> pa.Table:
    """The rows of a savepoint, as `states_to_rows` has them."""
    rows = _rows_of(lake, path, savepoint_id)
    return pa.table(
        {
            "bucket": pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows),
            "key": rows["key"],
            "state": rows["state"],
            "changed_at_us": rows["changed_at"].cast(pa.int64()),
            "timeout_at_us": rows["timeout_at"].cast(pa.int64()),
            **{name: rows[name] for name in beside_in(rows.column_names)},
        }
    )


def delete_rows(lake: Lake, path: str, savepoint_ids: Sequence[str]) -> None:
    """Delete the rows of savepoints; nothing happens when the table is gone."""
    if not savepoint_ids or not lake.is_delta_table(f"{lake.root}/{path}"):
        return
    listed = ", ".join(f"'{savepoint_id}'" for savepoint_id in savepoint_ids)
    delta_table(f"{lake.root}/{path}").delete(f"savepoint_id IN ({listed})")


def _rows_of(lake: Lake, path: str, savepoint_id: str) -> pa.Table:
    where = f"{lake.root}/{path}"
    table = open_table(where) if lake.is_delta_table(where) else delta_table(where)
    _check_lengths(lake, path, table, savepoint_id)
    files = table.to_pyarrow_dataset(filesystem=files_of(f"{lake.root}/{path}"))
    return files.to_table(filter=pc.field("savepoint_id") == savepoint_id)


def _check_lengths(lake: Lake, path: str, table: DeltaTable, savepoint_id: str) -> None:
    """FileNotFoundError or ArrowInvalid when a file has not the length that the log says."""
    adds = pa.table(table.get_add_actions(flatten=True))
    if not adds.num_rows:
        return
    adds = adds.filter(pc.equal(adds["partition.savepoint_id"], savepoint_id))
    root = PurePosixPath(lake.path_in_filesystem(f"{lake.root}/{path}"))
    names = [str(root / unquote(name)) for name in adds["path"].to_pylist()]
    infos = lake.filesystem.get_file_info(names)
    for info, size in zip(infos, adds["size_bytes"].to_pylist(), strict=True):
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{info.path} is not there")
        if info.size != size:
            raise pa.ArrowInvalid(f"{info.path} has {info.size} of its {size} bytes")


def _checked(rows: pa.Table) -> list[dict[str, object]]:
    plain = {name: rows[name] for name in (*CHECKED, *beside_in(rows.column_names))}
    for name in ("changed_at", "timeout_at"):
        plain[name] = plain[name].cast(pa.int64())
    listed: list[dict[str, object]] = pa.table(plain).to_pylist()
    return listed
