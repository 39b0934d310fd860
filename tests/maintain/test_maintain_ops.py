"""The ops tables are joined and vacuumed, and lose no row. tests/lake/test_ops.py has others that write meanwhile."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from include.lake.ops import append_ops, read_ops
from include.lake.paths import Lake
from include.maintain.table_maintenance import maintain_ops
from include.settings import TABLE_MAINTENANCE

EAGER = replace(TABLE_MAINTENANCE, min_small_files=2, min_garbage_files=1)


def append_batch(lake: Lake, batch_id: int) -> None:
    row = {"stream": "user_counts", "generation": 1, "batch_id": batch_id}
    append_ops(lake, "batches", [row])


def batch_ids(lake: Lake) -> list[int]:
    return sorted(read_ops(lake, "batches")["batch_id"].to_pylist())


def files(lake: Lake) -> int:
    return len(DeltaTable(lake.ops("batches")).file_uris())


def test_small_files_are_joined_and_not_joined_again(lake):
    for batch in range(5):
        append_batch(lake, batch)
    maintain_ops(lake, (), EAGER)
    assert (files(lake), batch_ids(lake)) == (1, [0, 1, 2, 3, 4])
    # Readers begin at the newest version: no commit is read one by one.
    newest = DeltaTable(lake.ops("batches")).version()
    assert Path(lake.ops("batches"), "_delta_log", f"{newest:020}.checkpoint.parquet").exists()

    maintain_ops(lake, (), EAGER)
    assert DeltaTable(lake.ops("batches")).version() == newest


def test_what_was_replaced_long_ago_is_deleted(lake):
    for batch in range(3):
        append_batch(lake, batch)
    DeltaTable(lake.ops("batches")).optimize.compact()
    properties = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
    DeltaTable(lake.ops("batches")).alter.set_table_properties(properties)
    old = (datetime.now(UTC) - timedelta(days=1)).timestamp()
    for file in Path(lake.ops("batches")).glob("*.parquet"):
        os.utime(file, (old, old))
    maintain_ops(lake, (), EAGER)
    assert len(list(Path(lake.ops("batches")).glob("*.parquet"))) == 1
    assert batch_ids(lake) == [0, 1, 2]
