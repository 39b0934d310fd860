"""The engine that the jobs run on: Spark, with Delta and RocksDB."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from include.fold.arrow_values import state_schema
from include.fold.bucket import no_events, settle
from include.fold.definition import (
    DEAD_LETTERS_DDL,
    Definition,
    KeyedFold,
    MigrateState,
    output_ddl,
    state_ddl,
)
from include.fold.keys import bucket_ids
from include.fold.states import migrated
from include.ingest.initial_state import InitialStates, read_initial_state
from include.lake.paths import Lake, files_of
from include.lake.table import Staged, stage_empty
from include.stream.manifest import Savepoint
from spark_jobs.engines.engine import LiveQuery, Rows, Stage, WriteBatch
from spark_jobs.engines.live import run_query
from spark_jobs.engines.packed_files import BronzeEvents, events_between
from spark_jobs.engines.packing import Bounds, any_stream, bucket_of, from_stream, to_stream, unpack
from spark_jobs.engines.state_rows import projected, read_states, states_from_rows
from spark_jobs.tables.dead_letters import DeadLetters
from spark_jobs.tables.landing import staged
from spark_jobs.tables.product import Product

REPLAYED_DDL = (
    "bucket int, outputs binary, states binary, rows_folded bigint, dead_letters binary, "
    "rows_duplicate bigint"
)


def replay_fold(
    events: BronzeEvents,
    fold: KeyedFold,
    buckets: int,
    until_us: int,
    base: DataFrame | None = None,
) -> Stage:
    """Fold all of `events` before `until_us` onto the states of `base` (None: none); timeouts before it fire."""
    partitions = events.spark.conf.get("spark.sql.shuffle.partitions")
    ids = bucket_ids(buckets, int(str(partitions)))
    packed = events.pack(fold, ids).groupBy("bucket")

    def fold_onto(key: tuple[pa.Scalar, ...], packed: pa.Table, states: pa.Table) -> pa.Table:
        return _replay_bucket(fold, key[0].as_py(), packed, base=states, until_us=until_us)

    def fold_bucket(key: tuple[pa.Scalar, ...], packed: pa.Table) -> pa.Table:
        return fold_onto(key, packed, state_schema(fold).empty_table())

    if base is None:  # nothing to shuffle but the events
        folded = packed.applyInArrow(fold_bucket, REPLAYED_DDL)
    else:
        # They may have been written for other buckets.
        states = base.withColumn("bucket", bucket_of(ids, "key")).groupBy("bucket")
        folded = packed.cogroup(states).applyInArrow(fold_onto, REPLAYED_DDL)
    folded.persist()
    counts = [F.coalesce(F.sum(name), F.lit(0)) for name in ("rows_folded", "rows_duplicate")]
    try:
        rows_folded, rows_duplicate = folded.agg(*counts).collect()[0]
    except BaseException:
        folded.unpersist()
        raise
    return Stage(
        unpack(folded, "outputs", output_ddl(fold)),
        unpack(folded, "states", state_ddl(fold)),
        unpack(folded, "dead_letters", DEAD_LETTERS_DDL) if fold.keeps_dead_letters else None,
        rows_folded=rows_folded,
        held=folded,
        rows_duplicate=rows_duplicate,
    )


def _replay_bucket(
    fold: KeyedFold, bucket: int, packed: pa.Table, base: pa.Table, until_us: int
) -> pa.Table:
    streams = [from_stream(stream) for stream in packed["events"].to_pylist()]
    events = pa.concat_tables([no_events(fold), *streams])
    states = states_from_rows(fold, base)
    complete = settle(fold, lambda: states, events, until_us, timeouts_due=fold.changes_by_clock)
    rows = to_stream(states.rows())
    return pa.table(
        {
            "bucket": pa.array([bucket], pa.int32()),
            "outputs": pa.array([any_stream(complete.outputs)], pa.binary()),
            "states": pa.array([rows], pa.binary()),
            "rows_folded": pa.array([complete.rows_folded], pa.int64()),
            "dead_letters": pa.array([any_stream(complete.dead_letters)], pa.binary()),
            "rows_duplicate": pa.array([complete.rows_duplicate], pa.int64()),
        }
    )


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

    def published(self, fold: KeyedFold, outputs: Sequence[Rows], states: Rows) -> Rows:
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
