"""The `ops` tables: what happened, for people and for the Dags.

Written by delta-rs only, so that a task without a JVM can write them, and so that a
row of a few numbers costs milliseconds and not a Spark job. One schema per table here;
a column's comment is its documentation in the table.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from include.lake import Lake

INSTANT = pa.timestamp("us", tz="UTC")
ATTEMPTS = 20
COMMITS_BETWEEN_COMPACTIONS = 50
Result = TypeVar("Result")


def _column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


RUNS = pa.schema(
    [
        _column("run_id", pa.string(), "Key: one execution of one job"),
        _column("job", pa.string(), "ingest_source, reingest_quarantine or run_stream"),
        _column("subject", pa.string(), "The source or stream it worked on"),
        _column("dag_run_id", pa.string(), "The Airflow Dag run; null when started by hand"),
        _column("started_at", INSTANT, "When the job began"),
        _column("ended_at", INSTANT, "When it ended"),
        _column("outcome", pa.string(), "succeeded or failed"),
        _column("error", pa.string(), "Why it failed; null otherwise"),
        _column("batches", pa.int64(), "Batches committed in this run"),
        _column("files_landed", pa.int64(), "Ingest: files taken from landing"),
        _column("rows_landed", pa.int64(), "Ingest: rows found in them; bronze + quarantined"),
        _column("rows_bronze", pa.int64(), "Ingest: rows appended to bronze"),
        _column("rows_quarantined", pa.int64(), "Ingest: rows (and whole files) refused"),
        _column(
            "rows_in",
            pa.int64(),
            "Stream: bronze rows read; folded + late + excluded + pending's change",
        ),
        _column("rows_folded", pa.int64(), "Stream: rows given to the state function"),
        _column("rows_late", pa.int64(), "Stream: rows behind the watermark, not folded"),
        _column("rows_pending", pa.int64(), "Stream: rows waiting to be settled after this run"),
        _column("rows_out", pa.int64(), "Stream: rows written to the table"),
        _column(
            "until", INSTANT, "Stream: the table is complete before this instant of event time"
        ),
        _column(
            "rows_excluded",
            pa.int64(),
            "Stream: rows before the initial state's as_of, which stands for them",
        ),
    ]
)

BATCHES = pa.schema(
    [
        _column("stream", pa.string(), "Key, with generation and batch_id"),
        _column("generation", pa.int64(), "The checkpoint's generation"),
        _column("batch_id", pa.int64(), "Spark's batch id"),
        _column("run_id", pa.string(), "The run (ops/runs) that committed it"),
        _column("committed_at", INSTANT, "When its rows were written"),
        _column(
            "rows_in", pa.int64(), "Bronze rows read; folded + late + excluded + pending's change"
        ),
        _column("rows_folded", pa.int64(), "Rows given to the state function"),
        _column("rows_late", pa.int64(), "Rows behind the watermark, not folded"),
        _column("rows_pending", pa.int64(), "Rows waiting to be settled after this batch"),
        _column("rows_out", pa.int64(), "Rows written to the table"),
        _column("buckets_touched", pa.int64(), "Buckets that were called"),
        _column("watermark", INSTANT, "The fold's watermark that this batch reached"),
        _column("state_bytes", pa.int64(), "Memory used by the state stores (Spark's metric)"),
        _column("state_rows", pa.int64(), "Rows in the state stores, all column families"),
        _column("durations_ms", pa.string(), "JSON: Spark's durationMs of the batch"),
        _column("state_metrics", pa.string(), "JSON: Spark's customMetrics of the operator"),
        _column("rows_excluded", pa.int64(), "Rows before the initial state's as_of"),
        _column("late_from", INSTANT, "Event time of the earliest late row; null without any"),
        _column("late_to", INSTANT, "Event time of the last late row; null without any"),
        _column(
            "kept_without_timeout",
            pa.int64(),
            "States after this batch that nothing but a new event will wake; 0 without timeouts",
        ),
        # So that a run can add up all rows ever read by the newest row alone.
        _column("total_in", pa.int64(), "rows_in of this generation up to this batch"),
        _column("total_folded", pa.int64(), "rows_folded up to this batch"),
        _column("total_late", pa.int64(), "rows_late up to this batch"),
        _column("total_excluded", pa.int64(), "rows_excluded up to this batch"),
    ]
)

GENERATIONS = pa.schema(
    [
        _column("stream", pa.string(), "Key, with generation"),
        _column("generation", pa.int64(), "A checkpoint's life, from its first run or a reseed"),
        _column("started_at", INSTANT, "When its first run began"),
        _column("buckets", pa.int64(), "Pinned: buckets that keys are hashed into"),
        _column("state_partitions", pa.int64(), "Pinned: state partitions of the checkpoint"),
        _column("state_schema", pa.string(), "Pinned: the stored key and state, as Spark DDL"),
        _column("source", pa.string(), "Pinned: the source whose bronze it folds"),
        _column("key", pa.string(), "Pinned: the field that states are kept by"),
        _column("output_mode", pa.string(), "Pinned: append or update"),
        _column("watermark_delay_ms", pa.int64(), "Pinned: what is late and what is settled"),
        _column("timeout", pa.string(), "Pinned: the kind of timeout; null for none"),
        _column("settings", pa.string(), "Pinned: JSON, what the stream's entry sets; or null"),
        _column("initial_state", pa.string(), "Pinned: fingerprint of the initial state; or null"),
        _column("initial_as_of", INSTANT, "Pinned: the instant of the initial state; or null"),
    ]
)

FINDINGS = pa.schema(
    [
        _column("run_id", pa.string(), "The run (ops/runs) that found it"),
        _column("found_at", INSTANT, "When"),
        _column("subject", pa.string(), "The source or stream it is about"),
        _column("finding", pa.string(), "What it is: a stable word, such as late_rows"),
        _column("severity", pa.string(), "info, warning, or error: the run failed with it"),
        _column("count", pa.int64(), "How many rows or keys it is about"),
        _column("event_time_from", INSTANT, "Event time of the first of these rows, if they are"),
        _column("event_time_to", INSTANT, "Event time of the last of them"),
        _column("detail", pa.string(), "What it means and what to do, for people"),
    ]
)

SCHEMAS = {"runs": RUNS, "batches": BATCHES, "generations": GENERATIONS, "findings": FINDINGS}


def append_ops(
    lake: Lake,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    transaction: tuple[str, int] | None = None,
) -> bool:
    """Append `rows` to `ops/<name>` in one commit; columns not given are null.

    With a `transaction` (application id, version) the rows are written once: False, and
    nothing written, when that version or a later one is recorded in the table.
    """
    schema = SCHEMAS[name]
    unknown = {column for row in rows for column in row} - set(schema.names)
    if unknown:
        raise ValueError(f"ops/{name} has no column {', '.join(sorted(unknown))}")
    data = _table_of(rows, schema)

    def append() -> bool:
        table = _ensure_table(lake, name)
        properties = None
        if transaction is not None:
            app_id, version = transaction
            recorded = table.transaction_version(app_id)
            if recorded is not None and recorded >= version:
                return False
            properties = CommitProperties(app_transactions=[Transaction(app_id, version)])
        write_deltalake(table, data, mode="append", commit_properties=properties)
        _compact_now_and_then(lake, name)
        return True

    return _despite_others(append)


def _compact_now_and_then(lake: Lake, name: str) -> None:
    """Each row is a file, and reading takes a millisecond a file: join them in time."""
    table = DeltaTable(lake.ops(name))
    if table.version() % COMMITS_BETWEEN_COMPACTIONS:
        return
    try:
        table.optimize.compact()
    except CommitFailedError:
        return  # another stream's commit came between; a later one compacts


def _table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    # Without the comments: delta-rs refuses data whose comments are not those of the table,
    # and a table of an earlier release has the earlier words.
    plain = pa.schema([field.remove_metadata() for field in schema])
    return pa.Table.from_pylist([dict(row) for row in rows], schema=plain)


def update_ops(
    lake: Lake, name: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Fill columns of rows that are already in `ops/<name>`, found by their `key` columns."""
    if not rows:
        return
    columns = [column for column in rows[0] if column not in key]
    schema = pa.schema([SCHEMAS[name].field(column) for column in rows[0]])
    data = _table_of(rows, schema)

    def update() -> None:
        merge = _ensure_table(lake, name).merge(
            data,
            predicate=" AND ".join(f"target.{column} = source.{column}" for column in key),
            source_alias="source",
            target_alias="target",
        )
        merge.when_matched_update({column: f"source.{column}" for column in columns}).execute()

    _despite_others(update)


def _despite_others(commit: Callable[[], Result]) -> Result:
    """`commit`, again when another stream's commit to the same table came between.

    All streams share these tables. Both writes may be repeated: an append under a
    transaction looks first, one without has not happened, and an update sets the same again.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return commit()
        except CommitFailedError:
            # Not in step with whoever was faster.
            time.sleep(random.uniform(0.02, 0.1) * attempt)
    return commit()


def read_ops(lake: Lake, name: str, where: Mapping[str, Any] | None = None) -> pa.Table:
    """Rows of `ops/<name>`, of those columns' values; none when nothing has been recorded."""
    if not lake.is_delta_table(lake.ops(name)):
        return SCHEMAS[name].empty_table()
    filters = [(column, "=", value) for column, value in (where or {}).items()]
    rows = DeltaTable(lake.ops(name)).to_pyarrow_table(filters=filters or None)
    for column in SCHEMAS[name]:
        if column.name not in rows.column_names:  # written by an earlier release
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
    return rows


def _ensure_table(lake: Lake, name: str) -> DeltaTable:
    table = DeltaTable.create(lake.ops(name), schema=SCHEMAS[name], mode="ignore")
    known = {column.name for column in table.schema().fields}
    new = [column for column in SCHEMAS[name] if column.name not in known]
    if new:
        table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
    return table
