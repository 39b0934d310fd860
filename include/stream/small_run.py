"""Which runs of a stream are small: one process writes what they come to, and JVMs are shared by them."""

import pyarrow as pa
import pyarrow.compute as pc

from include.lake.delta_log import table_to_read
from include.settings import MIB
from include.stream.open_stream import OpenStream
from include.stream.record import rows_unread

FETCHED_ROWS = 200_000
MERGED_BYTES = 256 * MIB


def is_small(opened: OpenStream) -> bool:
    """Whether the run's batches are better written by one process than by Spark.

    By the rows that wait in bronze; and by an update table's size: a MERGE of delta-rs reads all of it.
    """
    size = _table_bytes(opened)  # in any case: a table whose log is none is not taken for small
    waiting = rows_unread(opened.lake, opened.record, opened.row, opened.source)
    is_light = opened.fold.output_mode == "append" or size <= MERGED_BYTES
    return waiting <= FETCHED_ROWS and is_light


def _table_bytes(opened: OpenStream) -> int:
    path = opened.lake.table(opened.name)
    if not opened.lake.is_delta_table(path):
        return 0
    files = pa.table(table_to_read(path).get_add_actions())
    return pc.sum(files["size_bytes"]).as_py() or 0
