"""Which generation of its state a stream runs on, and whether a reseed to another has begun.

A reseed writes its intent as a row of `ops/generations` first, and makes that row the current
one last; each is one commit. What lies between can be repeated as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from include.lake.delta_log import table_to_read
from include.lake.ops import read_ops
from include.lake.paths import Lake, LakeError

FIRST = 1
INTENT, CURRENT = "intent", "current"
REJECTED = "rejected"  # as `app_id` calls that table

GenerationRow = Mapping[str, Any]  # of ops/generations


def app_id(stream: str, generation: int, table: str) -> str:
    """Names a generation's writes to one table, for the exactly-once writers."""
    return f"{app_prefix(stream)}{generation}/{table}"


def app_prefix(stream: str) -> str:
    """With what the names of all its generations' writes begin."""
    return f"{stream}/"


def exactly_once_tables(lake: Lake, stream: str) -> dict[str, str]:
    """The tables that a stream's batches are written to once each: their paths, by what `app_id`
    calls them."""
    return {
        "table": lake.table(stream),
        REJECTED: lake.rejected(stream),
        "batches": lake.ops("batches"),
    }


def written_batch(lake: Lake, path: str, stream: str, generation: int, table: str) -> int | None:
    """The newest batch of a generation that is in the table at `path`; None: none, or no table."""
    if not lake.is_delta_table(path):
        return None
    version: int | None = table_to_read(path).transaction_version(app_id(stream, generation, table))
    return version


@dataclass(frozen=True)
class Generations:
    """A stream's generations, as `ops/generations` had them when they were read."""

    stream: str
    path: str  # of the table, for messages
    rows: tuple[GenerationRow, ...]  # all of them, an open intent's too

    @property
    def current(self) -> GenerationRow | None:
        """The row of the current one; None before the stream's first run or reseed."""
        lived = (row for row in self.rows if row["status"] != INTENT)
        return max(lived, key=lambda row: int(row["generation"]), default=None)

    @property
    def number(self) -> int:
        """The generation of the checkpoint that the stream runs on, or will: before its first run FIRST,
        or the one after the last that was given up, whose row would be taken for its own."""
        if self.current is not None:
            return int(self.current["generation"])
        given_up = (row for row in self.rows if row["deleted_at"] is not None)
        return max((int(row["generation"]) + 1 for row in given_up), default=FIRST)

    @property
    def intent(self) -> GenerationRow | None:
        """The reseed that was begun and not finished; None when there is none."""
        return max(self.intents, key=lambda row: int(row["generation"]), default=None)

    @property
    def intents(self) -> list[GenerationRow]:
        """It, and those that it has overtaken."""
        newest = FIRST - 1 if self.current is None else self.number
        # One below the current generation was overtaken by a reseed that was finished; a deleted
        # one was given up.
        return [
            row
            for row in self.rows
            if row["status"] == INTENT and row["generation"] > newest and row["deleted_at"] is None
        ]

    def pinned(self, generation: int) -> GenerationRow:
        """What the generation was made with; LakeError when its row is gone, or there twice."""
        rows = [row for row in self.rows if row["generation"] == generation]
        if len(rows) != 1:
            raise LakeError(
                f"{self.path} has {len(rows)} rows of stream {self.stream}, generation "
                f"{generation}: it must have the one that says what the state was made with. Put "
                "the table back from a copy; or make state and table anew",
                code="unreadable_table",
                subject="ops/generations",
                command=f"./stateful reseed {self.stream} --apply",
            )
        return rows[0]

    def replaced_at(self) -> dict[int, datetime]:
        """When each generation was replaced, by its number: not the current one, nor an intent."""
        lived = sorted(
            (row for row in self.rows if row["status"] != INTENT),
            key=lambda row: int(row["generation"]),
        )
        return {
            int(row["generation"]): successor["switched_at"]
            for row, successor in pairwise(lived)
            if successor["switched_at"] is not None
        }


def read_generations(lake: Lake, stream: str) -> Generations:
    """All of a stream's generations; read once, and handed on."""
    rows = read_ops(lake, "generations", {"stream": stream}).to_pylist()
    return Generations(stream, lake.ops("generations"), tuple(rows))


def is_reseeded(row: GenerationRow | None) -> bool:
    """Whether the generation began with a savepoint, and not with a stream's first run."""
    return row is not None and row["seed_savepoint"] is not None
