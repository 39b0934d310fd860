"""The files of a bronze table, as its log describes them: which of them must be read at all.

Delta cuts the instants of its statistics to milliseconds: a file's first row is not before the
smallest, its last may be up to 999 microseconds after the largest.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import dataset as ds

from include.fold.instants import US_PER_MS
from include.lake.delta_log import unbroken
from include.lake.paths import files_of

INSTANT = pa.timestamp("us", tz="UTC")
DAY_US = 24 * 3_600_000_000


class BronzeFiles:
    """What the log says of each file of bronze, as columns; null where it does not say."""

    def __init__(self, table: DeltaTable) -> None:
        self._adds = pa.table(table.get_add_actions(flatten=True))

    def instants(self, bound: Literal["min", "max"], column: str) -> Any:
        """Each file's smallest or largest instant in microseconds, cut to a millisecond."""
        return self._column(f"{bound}.{column}", INSTANT).cast(pa.int64())

    def latest(self, column: str) -> Any:
        """An instant which no row of the file is after, in microseconds."""
        return pc.add(self.instants("max", column), US_PER_MS - 1)

    def span(self, time_column: str) -> tuple[Any, Any]:
        """Two instants in microseconds between which each file's rows lie, both inclusive."""
        first, last = self.instants("min", time_column), self.latest(time_column)
        if time_column != "event_time":
            return first, last
        date = self._column("partition.event_date", pa.date32())
        midnight = date.cast(pa.timestamp("us")).cast(pa.int64())
        end = pc.add(midnight, DAY_US - 1)
        return pc.max_element_wise(first, midnight), pc.min_element_wise(last, end)

    def events(self) -> Any:
        """Each file's rows; null as well when clock rows, which have no `source_file`, may be
        among them."""
        no_clocks = pc.equal(self._column("null_count.source_file", pa.int64()), 0)
        return pc.if_else(known(no_clocks), self._column("num_records", pa.int64()), None)

    def paths_but(self, excluded: Any) -> list[str]:
        """The files for which `excluded` is not true."""
        paths: list[str] = self._adds["path"].filter(pc.invert(known(excluded))).to_pylist()
        return paths

    def _column(self, name: str, kind: pa.DataType) -> Any:
        if name not in self._adds.column_names:
            return pa.chunked_array([pa.nulls(self._adds.num_rows, kind)])
        return self._adds[name].cast(kind)


def known(condition: Any) -> Any:
    """True where the condition is; false where it is not, or where that is not known."""
    return pc.fill_null(condition, False)


def read_files(
    table: DeltaTable,
    paths: Sequence[str],
    columns: list[str],
    wanted: pc.Expression | None = None,
) -> Iterator[Any]:
    """Rows of these files alone. Read without delta-rs's dataset: that takes the statistics for
    exact, and rows within the last millisecond would be left out by file. LakeError when one is
    lost or damaged."""
    if not paths:
        return
    uri = str(table.table_uri)
    filesystem = files_of(uri)
    parquet = ds.ParquetFileFormat()
    fragments = [parquet.make_fragment(path, filesystem) for path in paths]
    schema = pa.schema(table.schema().to_arrow())
    dataset = ds.FileSystemDataset(fragments, schema, parquet, filesystem)
    with unbroken(uri):
        yield from dataset.scanner(columns, filter=wanted).to_batches()
