"""The values that a job gives to an engine and gets from it: `SparkEngine`, or that of the simulator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from include.fold.definition import KeyedFold
from include.lake.paths import Lake
from include.settings import Stream

Rows = Any


class Stage(NamedTuple):
    """The fold of a bounded set of events. The engine holds it until it is released."""

    outputs: Rows
    states: Rows  # at the stage's end
    dead_letters: Rows | None  # calls that failed (DEAD_LETTERS); None: the fold keeps none
    rows_folded: int  # without the duplicates
    held: Any  # the engine's own
    rows_duplicate: int = 0

    @property
    def events(self) -> int:
        """The number of events in its states, beyond those of the states that it began with."""
        return self.rows_folded + self.rows_duplicate


class Seed(NamedTuple):
    """The states and events that a live fold begins with."""

    as_of_us: int  # on the fold's clock; rows before it are left out
    states: Rows | None  # None when a checkpoint has them already
    waiting: Rows | None = None  # bronze rows from `as_of_us` on that are not complete yet


class FoldedBatch(NamedTuple):
    """The result of one batch of a live query."""

    # Added up over its buckets: `SUMMED` of live_batch, first and last late row, buckets touched and
    # buckets with dead letters, most rows of one, watermark.
    counts: Mapping[str, Any]
    emitted: Rows  # to write: the output's columns, `emitted_at_us`, (update) `removed`
    dead_letters: Rows  # the calls that failed (DEAD_LETTERS of include.fold.arrow_values)


WriteBatch = Callable[[FoldedBatch, int], None]


@dataclass(frozen=True)
class LiveQuery:
    """One availableNow run of a stream over its checkpoint."""

    lake: Lake
    stream: Stream  # with the buckets and partitions of its generation
    fold: KeyedFold
    checkpoint: str
    settings: Mapping[str, str]  # of the session while it runs
    seed: Seed | None = None
    first_version: int | None = None  # of bronze; None: begin with all there is
    compacting: bool = False  # under compacting settings, each bronze file a batch of its own
    is_small: bool = False  # its batches may be fetched by the driver, and written there
