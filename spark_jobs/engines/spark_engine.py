"""The engine that the jobs run on: Spark, with Delta and RocksDB."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from include.fold.arrow_values import state_schema
from include.fold.definition import Definition, KeyedFold, MigrateState, output_ddl, state_ddl
from include.fold.states import migrated
from include.ingest.initial_state import InitialStates, read_initial_state
from include.lake.paths import Lake, files_of
from include.lake.table import Staged, stage_empty
from include.stream.manifest import Savepoint
from spark_jobs.engines.engine import LiveQuery, Rows, Stage, WriteBatch
from spark_jobs.engines.live import run_query
from spark_jobs.engines.packed_files import events_between
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.state_rows import projected, read_states, replay_fold
from spark_jobs.tables.dead_letters import DeadLetters
from spark_jobs.tables.landing import staged
from spark_jobs.tables.product import Product


class SparkEngine:
    """The engine of jobs: it reads, folds and writes by Spark. `LocalEngine` of the tests needs no JVM.

    `Rows` are an engine's own: jobs do not look inside.
    """

    def __init__(self, session: SparkSession) -> None:
        self._spark = session

    def product_table(
        self, lake: Lake, stream: str, definition: Definition, is_rebuilt: bool = False
    ) -> Product:
        return Product(lake, stream, definition, is_rebuilt, self._spark)

    def dead_letters_table(self, lake: Lake, stream: str) -> DeadLetters:
        return DeadLetters(lake, stream, self._spark)

    def events(self, lake: Lake, source: str, fold: KeyedFold, bounds: Bounds) -> Rows:
        return events_between(self._spark, lake.bronze(source), fold, bounds)

    def initial_states(self, lake: Lake, stream: str, fold: KeyedFold) -> InitialStates | None:
        """Read the initial state, checked as a whole; SettingsError says what is wrong with it."""
        initial = read_initial_state(lake, stream, fold)
        if initial is None:
            return None
        return initial._replace(states=self._spark.createDataFrame(initial.states))

    def migrated(self, states: Rows, fold: KeyedFold, migrate: MigrateState) -> Rows:
        """Return rows of a savepoint of any state schema as rows of `state_ddl(fold)`, computed lazily."""

        def migrate_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from migrated(batch, fold, migrate).to_batches()

        return states.mapInArrow(migrate_all, state_ddl(fold))

    def live_states(self, checkpoint: str, fold: KeyedFold, batch_id: int) -> Rows:
        """Read the states in a checkpoint after that batch."""
        return read_states(self._spark, checkpoint, fold, batch_id=batch_id)

    def stage_states(self, states: Rows, fold: KeyedFold, folder: str) -> list[Staged]:
        """Write `states` (`state_schema(fold)`) as Parquet files, at least one, into a folder."""
        schema = state_schema(fold)
        return staged(states, folder, schema, None) or [stage_empty(folder, schema)]

    def savepoint_states(self, lake: Lake, savepoint: Savepoint) -> Rows:
        """Read the rows of a savepoint that has been checked."""
        # By Arrow: Spark's reader takes {x} in a lake's path for a pattern.
        folder = savepoint.folder(lake)
        names = [(name,) for name in savepoint.files]

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for name in chain.from_iterable(batch["name"].to_pylist() for batch in batches):
                with files_of(folder).open_input_file(name) as file:
                    yield from pq.ParquetFile(file, page_checksum_verification=True).iter_batches()

        files = self._spark.sparkContext.parallelize(names, len(names)).toDF("name string")
        return files.mapInArrow(read, savepoint.state_schema.removeprefix("bucket int, "))

    def fold(
        self, events: Rows, fold: KeyedFold, buckets: int, until_us: int, base: Rows | None
    ) -> Stage:
        """Fold `events` before `until_us` into the states of `base`; timeouts before it fire."""
        return replay_fold(events, fold, buckets, until_us=until_us, base=base)

    def table_rows(self, fold: KeyedFold, outputs: Sequence[Rows], states: Rows) -> Rows:
        """Return the table's rows: the outputs of stages, or of an update stream their last states."""
        if fold.output_mode == "append":
            return reduce(DataFrame.union, outputs)

        def project_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from projected(fold, pa.Table.from_batches([batch])).to_batches()

        return states.mapInArrow(project_all, output_ddl(fold))

    def release(self, stage: Stage) -> None:
        stage.held.unpersist()

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        """Run the query, calling `write` before each commit; return the engine's measurements."""
        return run_query(self._spark, query, write)
