"""Which generation of its state a stream runs on, and whether a reseed to another has begun.

A reseed writes its intent as a row of `ops/generations` first, and makes that row the current
one last; each is one commit. What lies between can be repeated as a whole.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from deltalake import DeltaTable

from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError

FIRST = 1
INTENT, CURRENT = "intent", "current"

GenerationRow = Mapping[str, Any]  # of ops/generations


def app_id(stream: str, generation: int, table: str) -> str:
    """Names a generation's writes to one table, for the exactly-once writers."""
    return f"{stream}/{generation}/{table}"


def exactly_once_tables(lake: Lake, stream: str) -> dict[str, str]:
    """The tables that a stream's batches are written to once each: their paths, by what `app_id`
    calls them."""
    return {
        "table": lake.table(stream),
        "rejected": lake.rejected(stream),
        "batches": lake.ops("batches"),
    }


def written_batch(lake: Lake, path: str, stream: str, generation: int, table: str) -> int | None:
    """The newest batch of a generation that is in the table at `path`; None: none, or no table."""
    if not lake.is_delta_table(path):
        return None
    version: int | None = DeltaTable(path).transaction_version(app_id(stream, generation, table))
    return version


def current_generation(lake: Lake, stream: str) -> int:
    """The generation of the checkpoint that `stream` runs on; FIRST before its first run."""
    row = current_row(lake, stream)
    return FIRST if row is None else int(row["generation"])


def current_row(lake: Lake, stream: str) -> GenerationRow | None:
    """The row of the current generation; None before the stream's first run or reseed."""
    return _current(generation_rows(lake, stream))


def _current(rows: Iterable[GenerationRow]) -> GenerationRow | None:
    lived = [row for row in rows if row["status"] != INTENT]
    return max(lived, key=lambda row: row["generation"], default=None)


def open_intent(lake: Lake, stream: str) -> GenerationRow | None:
    """The reseed that was begun and not finished; None when there is none."""
    open_ = open_intents(lake, stream)
    return max(open_, key=lambda row: row["generation"], default=None)


def open_intents(lake: Lake, stream: str) -> list[GenerationRow]:
    """It, and those that it has overtaken."""
    rows = generation_rows(lake, stream)
    current = _current(rows)
    newest = FIRST - 1 if current is None else current["generation"]
    # One below the current generation was overtaken by a reseed that was finished; a deleted one
    # was given up.
    return [
        row
        for row in rows
        if row["status"] == INTENT and row["generation"] > newest and row["deleted_at"] is None
    ]


def pinned_row(lake: Lake, stream: str, generation: int) -> GenerationRow:
    """What the generation was made with; LakeError when its row is gone, or there twice."""
    rows = [row for row in generation_rows(lake, stream) if row["generation"] == generation]
    if len(rows) != 1:
        raise LakeError(
            f"{lake.ops('generations')} has {len(rows)} rows of stream {stream}, generation "
            f"{generation}: it must have the one that says what the state was made with. Put the "
            "table back from a copy"
        )
    return rows[0]


def is_reseeded(row: GenerationRow | None) -> bool:
    """Whether the generation began with a savepoint, and not with a stream's first run."""
    return row is not None and row["seed_savepoint"] is not None


def generation_rows(lake: Lake, stream: str) -> list[dict[str, Any]]:
    """All rows of a stream's generations, an open intent's too."""
    rows: list[dict[str, Any]] = read_ops(lake, "generations", {"stream": stream}).to_pylist()
    return rows


def replaced_at(rows: Iterable[GenerationRow]) -> dict[int, datetime]:
    """When each generation among `rows` (of one stream) was replaced, by its number.

    Neither the current one nor an intent is among them.
    """
    lived = sorted(
        (row for row in rows if row["status"] != INTENT), key=lambda row: int(row["generation"])
    )
    return {
        int(row["generation"]): successor["switched_at"]
        for row, successor in pairwise(lived)
        if successor["switched_at"] is not None
    }
