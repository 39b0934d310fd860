"""What carries a plan out: Spark, or one Python process.

A job decides and records; an engine reads, folds and writes. So the same job runs on Spark, and
in a simulator without a JVM that tries thousands of sequences of operations. `Rows` are an
engine's own (a DataFrame, an Arrow table): only the engine that made them looks inside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from include.fold.definition import Definition, KeyedFold, MigrateState
from include.ingest.initial_state import InitialStates
from include.lake.paths import Lake
from include.lake.table import Staged
from include.settings import Stream
from include.stream.manifest import Savepoint
from spark_jobs.engines.packing import Bounds
from spark_jobs.tables.dead_letters import DeadLetters
from spark_jobs.tables.product import Product

Rows = Any


class Stage(NamedTuple):
    """What folding a bounded set of events came to. Held by the engine until it is released."""

    outputs: Rows
    states: Rows  # at the stage's end
    dead_letters: Rows | None  # calls that failed (DEAD_LETTERS); None: the fold keeps none
    rows_folded: int
    held: Any  # the engine's own
    rows_duplicate: int = 0  # beside rows_folded

    @property
    def events(self) -> int:
        """The events that its states stand for, beyond those of its base."""
        return self.rows_folded + self.rows_duplicate


class Seed(NamedTuple):
    """Where a live fold begins that does not begin with nothing."""

    as_of_us: int  # on the fold's clock; rows before it are left out
    states: Rows | None  # None when a checkpoint has them already
    waiting: Rows | None = None  # bronze rows from `as_of_us` on that wait to be settled


class FoldedBatch(NamedTuple):
    """What one batch of a live query folded."""

    # Added up over its buckets: `SUMMED` of live_batch, first and last late row, buckets touched and
    # buckets with dead letters, most rows of one, watermark.
    counts: Mapping[str, Any]
    emitted: Rows  # to write: the output's columns, `emitted_at_us`, (update) `removed`
    dead_letters: Rows  # the calls that failed (DEAD_LETTERS of include.fold.states)


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


class Engine(Protocol):
    """Reads, folds and writes for a job. Each write to a table is one commit."""

    def product_table(
        self, lake: Lake, stream: str, definition: Definition, is_rebuilt: bool = False
    ) -> Product: ...

    def dead_letters_table(self, lake: Lake, stream: str) -> DeadLetters: ...

    # Bronze

    def events(self, lake: Lake, source: str, fold: KeyedFold, bounds: Bounds) -> Rows: ...

    # States

    def initial_states(self, lake: Lake, stream: str, fold: KeyedFold) -> InitialStates | None:
        """The initial state, checked as a whole; SettingsError says what is wrong with it."""
        ...

    def migrated(self, states: Rows, fold: KeyedFold, migrate: MigrateState) -> Rows: ...

    def count_without_timeout(self, states: Rows) -> int: ...

    def live_states(self, checkpoint: str, fold: KeyedFold, batch_id: int) -> Rows:
        """The states in a checkpoint after that batch."""
        ...

    # Savepoints

    def stage_states(self, states: Rows, fold: KeyedFold, folder: str) -> list[Staged]:
        """Write `states` (`state_schema(fold)`) as Parquet files, at least one, into a folder."""
        ...

    def savepoint_states(self, lake: Lake, savepoint: Savepoint) -> Rows:
        """The rows of a savepoint, for who has checked them."""
        ...

    # The fold

    def fold(
        self, events: Rows, fold: KeyedFold, buckets: int, until_us: int, base: Rows | None
    ) -> Stage:
        """Fold `events` before `until_us` into the states of `base`; timeouts before it fire."""
        ...

    def published(self, fold: KeyedFold, outputs: Sequence[Rows], states: Rows) -> Rows:
        """What the table has of the outputs of stages and the states that they came to."""
        ...

    def release(self, stage: Stage) -> None: ...

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        """Run the query to its end: `write` is called for each batch, before it is committed.

        Returns columns of ops/batches that the engine measured, a row a batch, with its
        `batch_id`. Raises what the query failed with.
        """
        ...
