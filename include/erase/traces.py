"""What `ops` has told people of a source and its streams, taken out: it may quote rows of an erased key."""

from collections.abc import Collection
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from include.lake.delta_log import delta_table
from include.lake.ops import despite_others
from include.lake.ops_schemas import SCHEMAS
from include.lake.paths import Lake, files_of

ERASED = "[erased]"
FOR_PEOPLE = ("detail", "action", "error", "examples")
SUBJECTS = ("subject", "stream")


def erase_in_ops(lake: Lake, subjects: Collection[str]) -> int:
    """How many cells of the `ops` tables were replaced: of these sources and streams, all that is for people."""
    tables = [lake.ops(name) for name in SCHEMAS if lake.is_delta_table(lake.ops(name))]
    return sum(despite_others(partial(_erase_in, path, subjects)) for path in tables)


def _erase_in(path: str, subjects: Collection[str]) -> int:
    table = delta_table(path)
    rows = table.to_pyarrow_dataset(filesystem=files_of(path)).to_table()
    about = next(rows[name] for name in SUBJECTS if name in rows.column_names)
    # Of a table its path: bronze/signals.
    names = pc.replace_substring_regex(about, pattern=".*/", replacement="")
    is_of_them, cells = pc.is_in(names, pa.array(list(subjects), pa.string())), 0
    for name in set(FOR_PEOPLE) & set(rows.column_names):
        told = pc.and_(is_of_them, pc.is_valid(rows[name]))
        cells += pc.sum(told).as_py() or 0
        column = pc.if_else(told, ERASED, rows[name]).cast(pa.string())
        rows = rows.set_column(rows.column_names.index(name), name, column)
    if cells:
        plain = pa.schema([field.remove_metadata() for field in rows.schema])
        write_deltalake(table, rows.cast(plain), mode="overwrite")
    return cells
