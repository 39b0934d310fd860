"""The biggest keys of a stream's newest savepoint: read file by file, so of any size."""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from include.care.bucket_state import BIGGEST_KEYS, shown_rows, value_bytes
from include.fold.instants import instant_of
from include.lake.paths import Lake
from include.lake.read_tables import dataset_of
from include.page.key_rows import text_of_key
from include.savepoints.manifest import Savepoint, savepoints_of

COLUMNS = ["key", "state", "changed_at", "timeout_at"]


@dataclass(frozen=True)
class BigKey:
    """A key, and what its state comes to as Arrow holds it."""

    key: str
    bytes: int
    changed_at: datetime | None
    timeout_at: datetime | None
    state: str | None  # the beginning of a long one; None: only what was seen, or timers, is kept


@dataclass(frozen=True)
class BigKeys:
    """The biggest keys as of an instant of the stream's clock, the biggest first."""

    until: datetime
    keys: tuple[BigKey, ...]


def biggest_keys(lake: Lake, stream: str) -> BigKeys | None:
    """Those of the newest savepoint of `stream`; None before there is one."""
    savepoints = savepoints_of(lake, stream)
    if not savepoints:
        return None
    newest = savepoints[-1]
    return BigKeys(instant_of(newest.until_us), _biggest(lake, newest))


# A savepoint stays what it is, and may have many millions of keys.
@lru_cache(maxsize=100)
def _biggest(lake: Lake, savepoint: Savepoint) -> tuple[BigKey, ...]:
    dataset = dataset_of(f"{lake.root}/{savepoint.path}")
    own = pc.field("savepoint_id") == savepoint.savepoint_id
    biggest: list[BigKey] = []
    for batch in dataset.to_batches(columns=COLUMNS, filter=own):
        biggest = sorted([*biggest, *_of_batch(batch)], key=lambda k: (-k.bytes, k.key))
        del biggest[BIGGEST_KEYS:]
    return tuple(biggest)


def _of_batch(rows: pa.RecordBatch) -> list[BigKey]:
    if not rows.num_rows:
        return []
    sizes = value_bytes(rows.select(["key", "state"]).to_struct_array())
    sized = pa.table({"bytes": sizes, "row": range(rows.num_rows)})
    order = [("bytes", "descending"), ("row", "ascending")]
    chosen = pc.select_k_unstable(sized, BIGGEST_KEYS, order)
    biggest = shown_rows(pa.Table.from_batches([rows.take(chosen)]))
    return [
        BigKey(bytes=int(sizes[at.as_py()]), **row | {"key": text_of_key(row["key"])})
        for at, row in zip(chosen, biggest, strict=True)
    ]
