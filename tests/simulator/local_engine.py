"""The engine in one Python process: what jobs ask for, by Arrow and delta-rs, without a JVM.

Rows are Arrow tables: events of `event_schema`, states of `state_schema`, outputs of
`output_schema`. The live query is a part that is given to it: Spark alone runs that in earnest.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, write_deltalake

from include.fold.admission import instant_of
from include.fold.arrow_values import event_schema, output_schema, state_schema
from include.fold.bucket import INSTANTS, as_events, dates_within, event_names, fold_complete
from include.fold.definition import (
    EMITTED_AT,
    EMITTED_AT_US,
    EMITTED_DATE,
    REMOVED,
    Definition,
    KeyedFold,
    MigrateState,
)
from include.fold.states import States, migrated
from include.ingest.bronze_tables import late_fields, with_late_fields
from include.ingest.initial_state import InitialStates, read_initial_state
from include.lake.columns import instant_scalar
from include.lake.dead_letters import AT, AT_DATE, NUMBER
from include.lake.delta_log import open_table, unbroken
from include.lake.lease import check_held
from include.lake.multiset import WEIGHT, has_weights, net
from include.lake.paths import Lake, files_of
from include.lake.table import USER_METADATA, Record, Staged, Table
from include.settings import Check, Verdict
from include.stream.manifest import Savepoint, states_in
from spark_jobs.engines.engine import LiveQuery, Stage, WriteBatch
from spark_jobs.engines.packing import TAKEN, Bounds
from spark_jobs.engines.state_rows import projected, states_from_rows
from spark_jobs.tables.dead_letters import DeadLetters, stored
from spark_jobs.tables.product import Product
from tests.simulator.writes import write_point


class LiveRunner(Protocol):
    """A runner of live queries over checkpoints, which reads their states, too."""

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        """See `SparkEngine.drain`."""
        ...

    def states(self, checkpoint: str, fold: KeyedFold, batch_id: int) -> pa.Table:
        """See `SparkEngine.live_states`."""
        ...


Judge = Callable[[pa.Table, Sequence[Check]], list[Verdict]]


class LocalEngine:
    """`SparkEngine` without a JVM. Live queries are those of `live`, and conditions of a stream's
    checks, which are SQL, are asked by `judge`."""

    def __init__(self, live: LiveRunner | None = None, judge: Judge | None = None) -> None:
        self._runner = live
        self._judge = judge

    def product_table(
        self, lake: Lake, stream: str, definition: Definition, is_rebuilt: bool = False
    ) -> Product:
        return LocalProduct(lake, stream, definition, is_rebuilt, self._judge)

    def dead_letters_table(self, lake: Lake, stream: str) -> DeadLetters:
        return LocalDeadLetters(lake, stream)

    # Bronze

    def events(self, lake: Lake, source: str, fold: KeyedFold, bounds: Bounds) -> pa.Table:
        ingested_at_us, from_us, until_us = bounds
        bronze = lake.bronze(source)
        table = open_table(bronze)
        late = late_fields(table, event_schema(fold).names)
        files = table.to_pyarrow_dataset(filesystem=files_of(bronze))
        time = INSTANTS[fold.time_us]
        # Files by their partition alone: Delta cuts the instants of its statistics to
        # milliseconds, and Arrow takes them for exact.
        dates = (
            dates_within(pc.field("event_date"), from_us, until_us)
            if time == "event_time"
            else None
        )
        names = {*event_names(fold), "ingested_at", "is_heartbeat"}
        names = names.union(*(field.columns() for field in late))
        if is_weighted := has_weights(table):
            names.add(WEIGHT)
        with unbroken(bronze):
            rows = files.to_table(columns=sorted(names), filter=dates)
        wanted = ~pc.field("is_heartbeat") & (
            pc.field("ingested_at") <= instant_scalar(ingested_at_us)
        )
        if from_us is not None:
            wanted &= pc.field(time) >= instant_scalar(from_us)
        if until_us is not None:
            wanted &= pc.field(time) < instant_scalar(until_us)
        rows = rows.filter(wanted)
        events = as_events(with_late_fields(rows, late), fold)
        return net(events.append_column(TAKEN, rows[WEIGHT]), TAKEN) if is_weighted else events

    # States

    def initial_states(self, lake: Lake, stream: str, fold: KeyedFold) -> InitialStates | None:
        """The initial state; SettingsError says what is wrong with it."""
        return read_initial_state(lake, stream, fold)

    def migrated(self, states: pa.Table, fold: KeyedFold, migrate: MigrateState) -> pa.Table:
        """MigrationError names the key that cannot be mapped."""
        columns = [column.combine_chunks() for column in states.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=states.schema)  # of no rows, too
        return migrated(batch, fold, migrate)

    def live_states(self, checkpoint: str, fold: KeyedFold, batch_id: int) -> pa.Table:
        """The states in a checkpoint after that batch."""
        return self._live().states(checkpoint, fold, batch_id)

    # Savepoints

    def stage_states(self, states: pa.Table, fold: KeyedFold, folder: str) -> list[Staged]:
        rows = states.select(state_schema(fold).names)
        name, files = f"part-{uuid4()}.parquet", files_of(folder)
        write_point(f"stage {folder}")
        files.create_dir(".", recursive=True)
        pq.write_table(rows, name, filesystem=files, write_page_checksum=True)
        return [Staged(name, files.get_file_info(name).size, rows.num_rows, "")]

    def savepoint_states(self, lake: Lake, savepoint: Savepoint) -> pa.Table:
        return states_in(lake, savepoint).to_table()

    # The fold

    def fold(
        self, events: pa.Table, fold: KeyedFold, buckets: int, until_us: int, base: pa.Table | None
    ) -> Stage:
        """Fold `events` before `until_us` into the states of `base`, as one bucket."""
        states = States(fold) if base is None else states_from_rows(fold, base)
        complete = fold_complete(
            fold, lambda: states, events, until_us, timeouts_due=fold.changes_by_clock
        )
        return Stage(
            complete.outputs,
            states.rows(),
            complete.dead_letters if fold.keeps_dead_letters else None,
            complete.rows_folded,
            held=None,
            rows_duplicate=complete.rows_duplicate,
        )

    def table_rows(
        self, fold: KeyedFold, outputs: Sequence[pa.Table], states: pa.Table
    ) -> pa.Table:
        return (
            pa.concat_tables(outputs) if fold.output_mode == "append" else projected(fold, states)
        )

    def release(self, stage: Stage) -> None:
        """Nothing is held."""

    def drain(self, query: LiveQuery, write: WriteBatch) -> list[dict[str, Any]]:
        return self._live().drain(query, write)

    def _live(self) -> LiveRunner:
        if self._runner is None:
            raise NotImplementedError(
                "a local engine runs no live queries by itself: give LocalEngine(live=...) what does"
            )
        return self._runner


# Without a predicate delta-rs lets rows stand that another writer has appended meanwhile.
EVERYTHING = "true"


class Range(NamedTuple):
    """The rows with the instant `at` from one on and before another; `date` is their partition."""

    at: str
    date: str
    from_us: int | None  # None: no bound
    until_us: int | None

    def rows(self) -> pc.Expression:
        """Those rows."""
        within = pc.scalar(True)
        if self.from_us is not None:
            within &= pc.field(self.at) >= instant_scalar(self.from_us)
        if self.until_us is not None:
            within &= pc.field(self.at) < instant_scalar(self.until_us)
        return within

    def predicate(self) -> str:
        """Both, for delta-rs: by the instants alone it would conflict with appends."""
        parts = []
        bounds = ((self.from_us, ">=", ">="), (self.until_us, "<", "<="))
        for bound_us, operator, of_date in bounds:
            if bound_us is not None:
                at = f"arrow_cast({bound_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
                date = instant_of(bound_us).date()
                parts.append(f"{self.at} {operator} {at} AND {self.date} {of_date} '{date}'")
        return " AND ".join(parts) or EVERYTHING


def replace_within(table: Table, within: Range, rows: pa.Table, record: Record) -> tuple[int, int]:
    """Make those of `rows` in the range the only ones there, in one commit; how many there were, and are."""
    new = rows.filter(within.rows())
    # Not by files: Delta cuts the instants of its statistics to milliseconds.
    files = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path))
    with unbroken(table.path):
        before = files.to_table(columns=[within.at]).filter(within.rows()).num_rows
    has_more = len(new.schema) > len(table.columns())
    check_held()
    if before or new.num_rows or has_more:
        write_deltalake(
            table.delta,
            new,
            mode="overwrite",
            schema_mode="merge" if has_more else None,
            predicate=within.predicate(),
            commit_properties=table.telling(record),
        )
    else:
        table.commit([], record)
    return before, new.num_rows


def replace_columns(
    table: Table, rows: pa.Table, partition_by: list[str], record: Record
) -> tuple[int, int]:
    """Make rows of other columns the whole table, in one commit, which carries the record."""
    before = table.delta.to_pyarrow_dataset(filesystem=files_of(table.path)).count_rows()
    check_held()
    told = {USER_METADATA: table.text(record, rows.schema)}
    write_deltalake(
        table.delta,
        rows,
        partition_by=partition_by,
        mode="overwrite",
        schema_mode="overwrite",
        commit_properties=CommitProperties(custom_metadata=told, max_commit_retries=0),
    )
    return before, rows.num_rows


class LocalProduct(Product):
    """`Product` whose rows are all in memory."""

    def __init__(
        self,
        lake: Lake,
        stream: str,
        definition: Definition,
        is_rebuilt: bool = False,
        judge: Judge | None = None,
    ) -> None:
        super().__init__(lake, stream, definition, is_rebuilt)
        self._judge = judge

    def refuse_wrong(self, checks: Sequence[Check]) -> None:
        """Judge no rows, which raises for a check that is no SQL."""
        self.judge(output_schema(self._fold).empty_table(), checks)

    def judge(
        self, emitted: pa.Table, checks: Sequence[Check], from_us: int | None = None
    ) -> list[Verdict]:
        if self._judge is None:
            raise NotImplementedError(
                "a local engine has no SQL of its own: give LocalEngine(judge=...) what has"
            )
        return self._judge(self._rows(emitted, from_us), checks)

    def replace(
        self,
        emitted: pa.Table,
        record: Record,
        from_us: int | None = None,
        until_us: int | None = None,
        is_recreated: bool = False,
    ) -> tuple[int, int]:
        self._follow(is_recreated)
        if not self._can_keep_rows and from_us is None:
            by = [EMITTED_DATE] if EMITTED_DATE in self._plain.names else []
            return replace_columns(self._table, self._rows(emitted, from_us), by, record)
        within = Range(EMITTED_AT, EMITTED_DATE, from_us, until_us)
        return replace_within(self._table, within, self._rows(emitted, from_us), record)

    def _rows(self, emitted: pa.Table, from_us: int | None) -> pa.Table:
        if from_us is not None:
            emitted = emitted.filter(pc.field(EMITTED_AT_US) >= from_us)
        if REMOVED in emitted.column_names:
            emitted = emitted.filter(~pc.field(REMOVED))
        return self._stored(emitted)


class LocalDeadLetters(DeadLetters):
    """`DeadLetters` whose rows are all in memory."""

    def replace_range(
        self, parts: Sequence[pa.Table], from_us: int | None, until_us: int | None
    ) -> None:
        """Make those of `parts` the only rows from one instant on and before another."""
        within = Range(AT, AT_DATE, from_us, until_us)
        table = self._opened()
        if from_us is not None:
            table.record()
        replace_within(table, within, stored(parts), {NUMBER: table.version + 1})
