"""The schemas of the `ops` tables, and what each table says that it is."""

import pyarrow as pa

INSTANT = pa.timestamp("us", tz="UTC")


def ops_column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """Nullable, as all columns that a later release adds must be."""
    return pa.field(name, kind, metadata={"comment": comment})


CHECKPOINT_SIZES = pa.schema(
    [
        ops_column("stream", pa.string(), "The stream whose checkpoint was measured"),
        ops_column("generation", pa.int64(), "The checkpoint's generation"),
        ops_column("measured_at", INSTANT, "When it was listed"),
        ops_column("run_id", pa.string(), "The newest run (ops/runs) of the stream by then"),
        ops_column(
            "part",
            pa.string(),
            "metadata, offsets, commits, sources, state (one row for each partition), "
            "state_metadata, or unknown",
        ),
        ops_column("operator", pa.int64(), "State: the operator's id; null for other parts"),
        ops_column("partition", pa.int64(), "State: the partition's number"),
        ops_column("store", pa.string(), "State: the store's name, such as default"),
        ops_column("bytes", pa.int64(), "Bytes of all its files, checksum files too"),
        ops_column("files", pa.int64(), "How many files these are"),
        ops_column("replay_versions", pa.int64(), "State: change logs a start replays after it"),
        ops_column("replay_bytes", pa.int64(), "State: bytes of these change logs"),
        ops_column("garbage_bytes", pa.int64(), "State: bytes that no start needs"),
    ]
)
ROCKSDB_MEMORY = pa.schema(
    [
        ops_column("stream", pa.string(), "The stream whose state stores it is of"),
        ops_column("at", INSTANT, "When: the runs from then on have it"),
        ops_column("change", pa.string(), "tried, kept or rolled_back"),
        ops_column("memory_mb", pa.int64(), "What they may use together, in MiB"),
        ops_column("before_mb", pa.int64(), "What it was before"),
        ops_column("why", pa.string(), "Why, with figures"),
    ]
)
ALERTS = pa.schema(
    [
        ops_column("subject", pa.string(), "Key: the source, stream or table, as in ops/findings"),
        ops_column("number", pa.int64(), "Key: counts the changes of the subject, from 1"),
        ops_column("finding", pa.string(), "Key: what it is, as in ops/findings"),
        ops_column("change", pa.string(), "opened, or closed: no run finds it any more"),
        ops_column("at", INSTANT, "When that was seen"),
        ops_column("opened_at", INSTANT, "Closed: when it opened"),
        ops_column("severity", pa.string(), "warning or error"),
        ops_column("count", pa.int64(), "How many rows or keys it is about"),
        ops_column("detail", pa.string(), "What it means"),
        ops_column("action", pa.string(), "What to do about it"),
        ops_column("dag_run_id", pa.string(), "The Airflow Dag run that saw it"),
        ops_column(
            "told_by", pa.string(), "Whose task tells of it: a stream, or table_maintenance"
        ),
        ops_column("heard_by", pa.string(), "JSON: the notifiers that have told of it"),
        ops_column("told_at", INSTANT, "When all of them had; null: still to be told"),
    ]
)
DATA_CHECKS = pa.schema(
    [
        ops_column("run_id", pa.string(), "The run (ops/runs) that asked"),
        ops_column("stream", pa.string(), "The stream whose `checks=` has it"),
        ops_column("job", pa.string(), "What would publish the rows, such as recompute_interval"),
        ops_column("generation", pa.int64(), "The generation that they are of"),
        ops_column("batch_id", pa.int64(), "Spark's batch id; null where it is no batch"),
        ops_column("checked_at", INSTANT, "When"),
        ops_column("check_name", pa.string(), "The check's name"),
        ops_column("severity", pa.string(), "warning or error"),
        ops_column("kind", pa.string(), "each_row, or together: of all rows published at once"),
        ops_column("condition", pa.string(), "What must hold, in Spark's SQL"),
        ops_column("rows", pa.int64(), "Rows that it was asked of"),
        ops_column(
            "rows_failing", pa.int64(), "Of these, those that do not meet it; null: not together"
        ),
        ops_column(
            "is_met",
            pa.bool_(),
            "Whether it held; if not, the rows are not published (error), or are (warning)",
        ),
        ops_column("examples", pa.string(), "JSON: some that do not meet it; null without any"),
    ]
)

RUNS = pa.schema(
    [
        ops_column("run_id", pa.string(), "Key: one execution of one job"),
        ops_column("job", pa.string(), "The entry point, such as run_stream"),
        ops_column(
            "subject",
            pa.string(),
            "The name of the source, stream or table it worked on: of a stream's runs `subject = 'user_counts'`",
        ),
        ops_column(
            "dag_run_id",
            pa.string(),
            "The Airflow Dag run; null when started by hand; `joined with` another one until its own "
            "has taken it",
        ),
        ops_column("started_at", INSTANT, "When the job began"),
        ops_column("ended_at", INSTANT, "When it ended"),
        ops_column("outcome", pa.string(), "succeeded or failed"),
        ops_column("error", pa.string(), "Why it failed; null otherwise"),
        ops_column("batches", pa.int64(), "Batches committed in this run"),
        ops_column("files_landed", pa.int64(), "Ingest: files taken from landing"),
        ops_column("rows_landed", pa.int64(), "Ingest: rows found in them; bronze + quarantined"),
        ops_column("rows_bronze", pa.int64(), "Ingest: rows appended to bronze"),
        ops_column("rows_quarantined", pa.int64(), "Ingest: rows (and whole files) refused"),
        ops_column("rows_rescued", pa.int64(), "Ingest: of bronze's, those with unknown fields"),
        ops_column(
            "rows_in",
            pa.int64(),
            "Stream: bronze rows read; folded + late + excluded + duplicate + pending's change",
        ),
        ops_column("rows_folded", pa.int64(), "Stream: rows given to the state function"),
        ops_column("rows_late", pa.int64(), "Stream: rows behind the watermark, not folded"),
        ops_column("rows_pending", pa.int64(), "Stream: rows waiting to be settled after this run"),
        ops_column(
            "rows_out",
            pa.int64(),
            "Stream: rows written to the table; of a recompute, those of its interval after it",
        ),
        ops_column(
            "until",
            INSTANT,
            "Stream: the table is complete before this instant of event time; of a recompute: its end",
        ),
        ops_column(
            "rows_excluded",
            pa.int64(),
            "Stream: rows before the initial state's as_of, which stands for them",
        ),
        ops_column("jvm_rss_bytes", pa.int64(), "Most memory the job's JVM held, RocksDB's in it"),
        ops_column(
            "python_rss_bytes",
            pa.int64(),
            "Most memory its Python processes held together: the driver and the workers",
        ),
        ops_column(
            "rows_rejected",
            pa.int64(),
            "Stream: of rows_folded, those that the function failed for, in rejected/<stream>; "
            "of a recompute or reseed, those in the interval that it replaced",
        ),
        ops_column("timeouts_rejected", pa.int64(), "Stream: timeouts that it failed for"),
        ops_column(
            "rows_duplicate",
            pa.int64(),
            "Stream: rows that their key had folded before (deduplicate=), not folded again",
        ),
        ops_column(
            "jvm_start_seconds",
            pa.float64(),
            "From its JVM's start to its own; null without one, and of another run's JVM",
        ),
        ops_column(
            "told_at", INSTANT, "Stream: when the Asset's event had told of it; null: never"
        ),
        ops_column(
            "start",
            INSTANT,
            "Recompute, reseed: rows emitted from here on, before `until`; null: from the beginning",
        ),
        ops_column("generation", pa.int64(), "The same: the stream's; of a reseed, its own"),
        ops_column(
            "base_until",
            INSTANT,
            "The same: the savepoint it was replayed from; null: no savepoint",
        ),
        ops_column("bronze_version", pa.int64(), "The same: the version of bronze replayed"),
        ops_column("rows_before", pa.int64(), "The same, append: the interval's table rows before"),
        ops_column("rows_removed", pa.int64(), "The same, append: rows that are no longer there"),
        ops_column("rows_added", pa.int64(), "The same, append: rows that were not there before"),
        ops_column("savepoint_id", pa.string(), "The same: the savepoint at its end"),
        ops_column(
            "estimated_seconds",
            pa.float64(),
            "Recompute: what the plan said; null: nothing to go by",
        ),
    ]
)
BATCHES = pa.schema(
    [
        ops_column("stream", pa.string(), "Key, with generation and batch_id"),
        ops_column("generation", pa.int64(), "The checkpoint's generation"),
        ops_column("batch_id", pa.int64(), "Spark's batch id"),
        ops_column("run_id", pa.string(), "The run (ops/runs) that committed it"),
        ops_column("committed_at", INSTANT, "When its rows were written"),
        ops_column(
            "rows_in",
            pa.int64(),
            "Bronze rows read; folded + late + excluded + duplicate + pending's change",
        ),
        ops_column("rows_folded", pa.int64(), "Rows given to the state function"),
        ops_column("rows_late", pa.int64(), "Rows behind the watermark, not folded"),
        ops_column("rows_pending", pa.int64(), "Rows waiting to be settled after this batch"),
        ops_column("rows_out", pa.int64(), "Rows written to the table"),
        ops_column("buckets_touched", pa.int64(), "Buckets that were called"),
        ops_column("watermark", INSTANT, "The fold's watermark that this batch reached"),
        ops_column("state_bytes", pa.int64(), "Memory used by the state stores (Spark's metric)"),
        ops_column("durations_ms", pa.string(), "JSON: Spark's durationMs of the batch"),
        ops_column("state_metrics", pa.string(), "JSON: Spark's customMetrics of the operator"),
        ops_column("rows_excluded", pa.int64(), "Rows before the initial state's as_of"),
        ops_column("late_from", INSTANT, "Event time of the earliest late row; null without any"),
        ops_column("late_to", INSTANT, "Event time of the last late row; null without any"),
        ops_column(
            "kept_without_timeout",
            pa.int64(),
            "States after this batch that nothing but a new event will wake; 0 without timeouts",
        ),
        # So that a run can add up all rows ever read by the newest row alone.
        ops_column("total_in", pa.int64(), "rows_in of this generation up to this batch"),
        ops_column("total_folded", pa.int64(), "rows_folded up to this batch"),
        ops_column("total_late", pa.int64(), "rows_late up to this batch"),
        ops_column("total_excluded", pa.int64(), "rows_excluded up to this batch"),
        ops_column("memory_mb", pa.int64(), "What RocksDB might use of memory, in MiB"),
        ops_column(
            "rows_rejected",
            pa.int64(),
            "Of rows_folded, those that the function failed for, in rejected/<stream>",
        ),
        ops_column("timeouts_rejected", pa.int64(), "Timeouts that the function failed for"),
        ops_column("rejected_from", INSTANT, "The first of both, on the fold's clock; null: none"),
        ops_column("rejected_to", INSTANT, "The last of both; null without any"),
        ops_column(
            "rows_duplicate",
            pa.int64(),
            "Rows that their key had folded before (deduplicate=), not folded again",
        ),
        ops_column(
            "total_duplicate",
            pa.int64(),
            "rows_duplicate up to this batch; those that a reseed read are in total_folded",
        ),
        ops_column("rows_in_most", pa.int64(), "Of rows_in, those of the bucket that had the most"),
    ]
)
FINDINGS = pa.schema(
    [
        ops_column("run_id", pa.string(), "The run (ops/runs) that found it"),
        ops_column("found_at", INSTANT, "When"),
        ops_column(
            "subject",
            pa.string(),
            "The name of the source, stream or table it is about: of a stream `subject = 'user_counts'`",
        ),
        ops_column("finding", pa.string(), "What it is: a stable word, such as late_rows"),
        ops_column("severity", pa.string(), "info, warning, or error: the run failed with it"),
        ops_column("count", pa.int64(), "How many rows or keys it is about"),
        ops_column(
            "event_time_from", INSTANT, "Event time of the first of these rows, if they are"
        ),
        ops_column("event_time_to", INSTANT, "Event time of the last of them"),
        ops_column("detail", pa.string(), "What it means and what to do, for people"),
        ops_column("figure", pa.float64(), "What was measured, if it has a limit"),
        ops_column("limit", pa.float64(), "The limit it was held against"),
        ops_column(
            "unit",
            pa.string(),
            "Of figure and limit: bytes, files, versions, batches, rows, share, times, seconds",
        ),
        ops_column("action", pa.string(), "What to do about it; null where detail says it"),
    ]
)
SCHEMAS = {
    "runs": RUNS,
    "batches": BATCHES,
    "findings": FINDINGS,
    "alerts": ALERTS,
    "data_checks": DATA_CHECKS,
    "checkpoint_sizes": CHECKPOINT_SIZES,
    "rocksdb_memory": ROCKSDB_MEMORY,
}
DESCRIPTIONS = {
    "runs": "Each run of a job, with its counts, until when the table is complete, and its error",
    "batches": "Each batch of a stream: rows, watermark, Spark's metrics and durations",
    "findings": "What a run or a check found that people should know, and what to do",
    "alerts": "What opened and closed of the findings that people are told of, each once",
    "data_checks": "What each check of a stream said of rows that were about to be published",
    "checkpoint_sizes": "Bytes and files of each checkpoint, by part, whenever it was measured",
    "rocksdb_memory": "What was tried of RocksDB's memory, why, and what came of it",
}
