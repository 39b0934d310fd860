"""Rows add up: what a stream has read of bronze, and what has become of it."""

import pyarrow as pa
import pyarrow.compute as pc

from include.checkpoint.batches import last_batch, running_totals
from include.checkpoint.position import consumed_version
from include.lake.delta_log import open_rows_of
from include.lake.errors import StatefulError
from include.lake.paths import Lake, files_of
from include.lake.read_tables import table_to_read
from include.text_table import counted

RECORDS, WITHOUT_FILE = "num_records", "null_count.source_file"


class RowCountError(StatefulError):
    """Rows were lost, or counted twice, between bronze and a stream."""

    code = "rows_do_not_add_up"
    exit_code = 1


def check_rows_add_up(lake: Lake, stream: str, source: str, generation: int) -> None:
    """Raise RowCountError unless all rows that the checkpoint has read are accounted for.

    Read by the stream = rows of bronze up to its position, and
    read = folded + late + excluded + duplicate + pending.
    """
    version = consumed_version(lake, lake.checkpoint(stream, generation))
    if version is None:
        return
    in_bronze = count_events(lake, lake.bronze(source), version)
    newest = last_batch(lake, stream, generation)
    done = running_totals(lake, stream, generation, newest)
    rows_in = done.pop("total_in")
    done["rows_pending"] = newest["rows_pending"] if newest else 0
    if not in_bronze == rows_in == sum(done.values()):
        raise RowCountError(
            f"stream {stream}: {lake.bronze(source)} has {counted(in_bronze, 'event')} up to version "
            f"{version}, but ops/batches says {rows_in} were read, and {sum(done.values())} "
            f"accounted for ({done}). The table cannot be trusted: keep the lake as it is, and "
            "find out which batch of ops/batches is wrong before the next run; or make table and "
            "state anew from bronze",
            subject=stream,
            command=f"./stateful reseed {stream} --recompute --apply",
        )


def rows_unread(lake: Lake, stream: str, source: str, generation: int) -> int:
    """The events of bronze that no batch of the stream has read yet."""
    path = lake.bronze(source)
    newest = last_batch(lake, stream, generation)
    read = running_totals(lake, stream, generation, newest)["total_in"]
    return count_events(lake, path, table_to_read(path).version()) - read


def count_events(lake: Lake, bronze: str, version: int) -> int:
    """The rows of a version of a bronze table that are no clock rows.

    By the statistics in the table's log: only clock rows have no source file. LakeError when the
    log's clean-up has taken the version away.
    """
    table = open_rows_of(lake, bronze, version)
    files = pa.table(table.get_add_actions(flatten=True))
    if not files.num_rows:
        return 0
    names = set(files.column_names)
    if not {RECORDS, WITHOUT_FILE} <= names or files[WITHOUT_FILE].null_count:
        # Delta has none past a table's 32nd column, nor where someone's rewriting left none:
        # count the rows themselves.
        rows = table.to_pyarrow_dataset(filesystem=files_of(bronze))
        return int(rows.count_rows(filter=~pc.field("is_clock")))
    return int(pc.sum(files[RECORDS]).as_py() - pc.sum(files[WITHOUT_FILE]).as_py())
