"""Rows add up: what a stream has read of bronze, and what has become of it."""

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from include.lake import Lake
from include.ops import read_ops
from include.stream_position import consumed_version

RECORDS, WITHOUT_FILE = "num_records", "null_count.source_file"


class RowCountError(RuntimeError):
    """Rows were lost, or counted twice, between bronze and a stream."""


def check_rows_add_up(lake: Lake, stream: str, source: str, generation: int) -> None:
    """Raise RowCountError unless all rows that the checkpoint has read are accounted for.

    Read by the stream = rows of bronze up to its position, and
    read = folded + late + excluded + pending.
    """
    version = consumed_version(lake, lake.checkpoint(stream, generation))
    if version is None:
        return
    in_bronze = count_events(lake.bronze(source), version)
    batches = read_ops(lake, "batches", {"stream": stream, "generation": generation})
    done = {
        name: pc.sum(batches[name]).as_py() or 0
        for name in ("rows_in", "rows_folded", "rows_late", "rows_excluded")
    }
    rows_in = done.pop("rows_in")
    newest = batches.sort_by([("batch_id", "descending")]).slice(0, 1)
    done["rows_pending"] = newest["rows_pending"][0].as_py()
    if not in_bronze == rows_in == sum(done.values()):
        raise RowCountError(
            f"stream {stream}: {lake.bronze(source)} has {in_bronze} events up to version "
            f"{version}, but ops/batches says {rows_in} were read, and {sum(done.values())} "
            f"accounted for ({done}). The table cannot be trusted: keep the lake as it is, and "
            "find out which batch of ops/batches is wrong before the next run"
        )


def count_events(bronze: str, version: int) -> int:
    """The rows of a version of a bronze table that are no clock rows.

    By the statistics in the table's log: only clock rows have no source file.
    """
    table = DeltaTable(bronze, version=version)
    files = pa.table(table.get_add_actions(flatten=True))
    if not files.num_rows:
        return 0
    names = set(files.column_names)
    if not {RECORDS, WITHOUT_FILE} <= names or files[WITHOUT_FILE].null_count:
        # Someone's rewriting has left no statistics: count the rows themselves.
        return int(table.to_pyarrow_dataset().count_rows(filter=~pc.field("is_clock")))
    return int(pc.sum(files[RECORDS]).as_py() - pc.sum(files[WITHOUT_FILE]).as_py())
