"""The rows of a key taken out of bronze and quarantine, and the landed files that they came in deleted.

What is here is found by what is left: killed anywhere, it is done again as a whole. Bronze comes
last, as its rows say what else there is.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import WriterProperties, write_deltalake

from include.erase.erased_key import ErasedKey
from include.erase.found_rows import Found, rows_and_mask
from include.lake.columns import APPEND_ONLY
from include.lake.open_delta import delta_table
from include.lake.paths import Lake, files_of
from include.lake.read_tables import dataset_of
from include.landing.bronze_commits import ROWS_A_GROUP

SNAPPY = WriterProperties(compression="SNAPPY", max_row_group_size=ROWS_A_GROUP)


def erase_rows(lake: Lake, key: ErasedKey, found: Found) -> None:
    """Landed files, then quarantine, then bronze. Under the leases of the source and its streams."""
    _delete_landed(lake, key.source.name, found.files)
    _rewrite_quarantine(lake, key.source.name, found.refused)
    _rewrite_bronze(lake, key, found.dates)


def files_in_landing(lake: Lake, source: str, names: Sequence[str]) -> list[str]:
    """Those of the files that are still there."""
    return [
        name for name in names if lake.filesystem.get_file_info(_landed(lake, source, name)).is_file
    ]


def _delete_landed(lake: Lake, source: str, names: Sequence[str]) -> None:
    for name in files_in_landing(lake, source, names):
        lake.filesystem.delete_file(_landed(lake, source, name))


def _landed(lake: Lake, source: str, name: str) -> str:
    return lake.path_in_filesystem(f"{lake.landing(source)}/{name}")


def _rewrite_quarantine(lake: Lake, source: str, refused: Sequence[str]) -> None:
    if not refused:
        return
    path = lake.quarantine(source)
    dataset, gone = dataset_of(path), pa.array(refused, pa.string())
    kept = dataset.scanner(filter=~pc.field("quarantine_id").isin(gone)).to_reader()
    write_deltalake(path, kept, mode="overwrite", writer_properties=SNAPPY)


def _rewrite_bronze(lake: Lake, key: ErasedKey, dates: Sequence[str]) -> None:
    """Date by date: all other rows of it are written again, in their order."""
    path = lake.bronze(key.source.name)
    if dates:
        delta_table(path).alter.set_table_properties({APPEND_ONLY: "false"})
    schema = delta_table(path).to_pyarrow_dataset(filesystem=files_of(path)).schema
    for date in dates:
        rows = pa.RecordBatchReader.from_batches(schema, _others(lake, key, date))
        write_deltalake(
            path,
            rows,
            mode="overwrite",
            predicate=f"event_date = '{date}'",
            writer_properties=SNAPPY,
        )
    if delta_table(path).metadata().configuration.get(APPEND_ONLY) == "false":
        delta_table(path).alter.set_table_properties({APPEND_ONLY: "true"})


def _others(lake: Lake, key: ErasedKey, date: str) -> Iterator[pa.RecordBatch]:
    parts = rows_and_mask(lake, key, date)
    return chain.from_iterable(rows.filter(pc.invert(mask)).to_batches() for rows, mask in parts)
