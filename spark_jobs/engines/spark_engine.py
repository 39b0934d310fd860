"""The engine that the jobs run on: Spark, with Delta and RocksDB."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from include.fold.definition import Definition, KeyedFold, MigrateState
from include.fold.group_state import TIMERS
from include.fold.states import state_schema
from include.ingest.initial_state import InitialStates, read_initial_state
from include.lake.paths import Lake, files_of
from include.lake.table import Staged, stage_empty
from include.stream.manifest import Savepoint
from spark_jobs.engines.engine import LiveQuery, Stage, WriteBatch
from spark_jobs.engines.live import run_query
from spark_jobs.engines.packed_files import BronzeEvents, events_between
from spark_jobs.engines.packing import Bounds
from spark_jobs.engines.replay import migrated_states, replay_fold
from spark_jobs.engines.state_rows import project_states, read_states
from spark_jobs.tables.dead_letters import DeadLetters
from spark_jobs.tables.landing import staged
from spark_jobs.tables.product import Product


class SparkEngine:
    """`Engine` of engine.py, which says what each method does. States are `state_rows_ddl`."""

    def __init__(self, session: SparkSession) -> None:
        self._spark = session

    def product_table(
        self, lake: Lake, stream: str, definition: Definition, is_rebuilt: bool = False
    ) -> Product:
        return Product(lake, stream, definition, is_rebuilt, self._spark)

    def dead_letters_table(self, lake: Lake, stream: str) -> DeadLetters:
        return DeadLetters(lake, stream, self._spark)

    def events(self, lake: Lake, source: str, fold: KeyedFold, bounds: Bounds) -> BronzeEvents:
        return events_between(self._spark, lake.bronze(source), fold, bounds)

    def initial_states(self, lake: Lake, stream: str, fold: KeyedFold) -> InitialStates | None:
        initial = read_initial_state(lake, stream, fold)
        if initial is None:
            return None
        return initial._replace(states=self._spark.createDataFrame(initial.states))

    def migrated(self, states: DataFrame, fold: KeyedFold, migrate: MigrateState) -> DataFrame:
        return migrated_states(states, fold, migrate)

    def count_without_timeout(self, states: DataFrame) -> int:
        kept = "timeout_at_us IS NULL AND state IS NOT NULL"
        timed = f"{kept} AND {TIMERS} IS NULL" if TIMERS in states.columns else kept
        return states.where(timed).count()

    def live_states(self, checkpoint: str, fold: KeyedFold, batch_id: int) -> DataFrame:
        return read_states(self._spark, checkpoint, fold, batch_id=batch_id)

    def stage_states(self, states: DataFrame, fold: KeyedFold, folder: str) -> list[Staged]:
        schema = state_schema(fold)
        return staged(states, folder, schema, None) or [stage_empty(folder, schema)]

    def savepoint_states(self, lake: Lake, savepoint: Savepoint) -> DataFrame:
        # By Arrow, as it was written: Spark's own reader takes {x} in a lake's path for a pattern.
        folder = savepoint.folder(lake)
        names = [(file.name,) for file in savepoint.files]

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for name in chain.from_iterable(batch["name"].to_pylist() for batch in batches):
                with files_of(folder).open_input_file(name) as file:
                    yield from pq.ParquetFile(file, page_checksum_verification=True).iter_batches()

        files = self._spark.sparkContext.parallelize(names, len(names)).toDF("name string")
        return files.mapInArrow(read, savepoint.state_schema.removeprefix("bucket int, "))

    def fold(
        self,
        events: BronzeEvents,
        fold: KeyedFold,
        buckets: int,
        until_us: int,
        base: DataFrame | None,
    ) -> Stage:
        return replay_fold(events, fold, buckets, until_us=until_us, base=base)

    def published(
        self, fold: KeyedFold, outputs: Sequence[DataFrame], states: DataFrame
    ) -> DataFrame:
        if fold.output_mode == "append":
            return reduce(DataFrame.union, outputs)
        return project_states(states, fold)

    def release(self, stage: Stage) -> None:
        stage.held.unpersist()

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        return run_query(self._spark, query, write)
