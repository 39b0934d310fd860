"""The schemas of the `ops` tables, and what each table says that it is."""

import pyarrow as pa

from include.lake.ops_care_schemas import (
    ALERTS,
    CHECKPOINT_SIZES,
    DATA_CHECKS,
    ROCKSDB_PROFILES,
    TABLE_SIZES,
)
from include.lake.ops_columns import INSTANT, ops_column
from include.lake.ops_state_schemas import (
    CLOCK_REPAIRS,
    COVERAGE,
    ERASURES,
    INTERVALS,
    SAVEPOINTS,
    TABLES,
    WATERMARK_GROUPS,
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
        ops_column("dag_run_id", pa.string(), "The Airflow Dag run; null when started by hand"),
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
        ops_column("rows_out", pa.int64(), "Stream: rows written to the table"),
        ops_column(
            "until", INSTANT, "Stream: the table is complete before this instant of event time"
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
        ops_column("profile", pa.int64(), "The profile (ops/rocksdb_profiles) it ran with"),
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

GENERATIONS = pa.schema(
    [
        ops_column("stream", pa.string(), "Key, with generation"),
        ops_column("generation", pa.int64(), "A checkpoint's life, from its first run or a reseed"),
        ops_column("started_at", INSTANT, "When its first run began"),
        ops_column("buckets", pa.int64(), "Pinned: buckets that keys are hashed into"),
        ops_column("state_partitions", pa.int64(), "Pinned: state partitions of the checkpoint"),
        ops_column("state_schema", pa.string(), "Pinned: the stored key and state, as Spark DDL"),
        ops_column("source", pa.string(), "Pinned: the source whose bronze it folds"),
        ops_column("key", pa.string(), "Pinned: the field that states are kept by"),
        ops_column("output_mode", pa.string(), "Pinned: append or update"),
        ops_column("watermark_delay_ms", pa.int64(), "Pinned: what is late and what is settled"),
        ops_column("timeout", pa.string(), "Pinned: the kind of timeout; null for none"),
        ops_column("settings", pa.string(), "Pinned: JSON, what the stream's entry sets; or null"),
        ops_column(
            "initial_state", pa.string(), "Pinned: fingerprint of the initial state; or null"
        ),
        ops_column("initial_as_of", INSTANT, "Pinned: the instant of the initial state; or null"),
        ops_column(
            "status",
            pa.string(),
            "intent: a reseed has begun; current: the stream runs on it; null: as current, "
            "made by a stream's first run",
        ),
        ops_column("reseed", pa.string(), "Why it was seeded, such as promote; null: a first run"),
        ops_column("options", pa.string(), "JSON: what the reseed was asked for"),
        ops_column(
            "base_savepoint", pa.string(), "The savepoint that was replayed from; null: none"
        ),
        ops_column(
            "base_until", INSTANT, "The instant of that savepoint; null: from the beginning"
        ),
        ops_column("seed_savepoint", pa.string(), "The savepoint that its first batch begins with"),
        ops_column("until", INSTANT, "The instant of that savepoint"),
        ops_column("bronze_id", pa.string(), "The bronze table (its Delta id) that was replayed"),
        ops_column("bronze_version", pa.int64(), "All of bronze up to this version is in the seed"),
        ops_column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        ops_column("seed_events", pa.int64(), "Bronze rows folded into the seed"),
        ops_column("seed_excluded", pa.int64(), "Bronze rows before the initial state's as_of"),
        ops_column("seed_pending", pa.int64(), "Bronze rows at or after until: seeded as pending"),
        ops_column("switched_at", INSTANT, "When the stream began to run on it; null: a first run"),
        ops_column(
            "code", pa.string(), "Fingerprint of the stream's code that all of it was made by"
        ),
        ops_column("code_changed_at", INSTANT, "When a run first wrote by other code; null: never"),
        ops_column(
            "event_schema",
            pa.string(),
            "The Event record of the newest run that wrote, as Spark DDL",
        ),
        ops_column(
            "deleted_at",
            INSTANT,
            "When its checkpoint was deleted, some time after it was replaced; of an intent: when "
            "it was given up; null: neither",
        ),
        ops_column(
            "query_id",
            pa.string(),
            "The query that its checkpoint is of, by Spark's id; null until a run has come to its end",
        ),
        ops_column(
            "key_code",
            pa.string(),
            "Fingerprint of the function that makes the key of an event; null for a field",
        ),
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
    "generations": GENERATIONS,
    "findings": FINDINGS,
    "alerts": ALERTS,
    "data_checks": DATA_CHECKS,
    "checkpoint_sizes": CHECKPOINT_SIZES,
    "rocksdb_profiles": ROCKSDB_PROFILES,
    "table_sizes": TABLE_SIZES,
    "savepoints": SAVEPOINTS,
    "intervals": INTERVALS,
    "coverage": COVERAGE,
    "tables": TABLES,
    "clock_repairs": CLOCK_REPAIRS,
    "erasures": ERASURES,
    "watermark_groups": WATERMARK_GROUPS,
}
DESCRIPTIONS = {
    "runs": "Each run of a job, with its counts, until when the table is complete, and its error",
    "batches": "Each batch of a stream: rows, watermark, Spark's metrics and durations",
    "generations": "What each generation of a stream's state was made with, and is pinned to",
    "findings": "What a run or a check found that people should know, and what to do",
    "alerts": "What opened and closed of the findings that people are told of, each once",
    "data_checks": "What each check of a stream said of rows that were about to be published",
    "checkpoint_sizes": "Bytes and files of each checkpoint, by part, whenever it was measured",
    "rocksdb_profiles": "The settings of RocksDB that were tried, why, and what came of it",
    "table_sizes": "Bytes and files of each table, before and after it was cared for",
    "savepoints": "The manifest of all savepoints: of what events each is the state",
    "intervals": "Each recompute and reseed: base, rows read, before, after, removed, added",
    "coverage": "What each product table was computed from, interval by interval",
    "tables": "What each table was after our last commit to it",
    "erasures": "Which keys were erased, each by a hash: what is done, and the proof of it",
    "clock_repairs": "How often a source's clock was wrong, and what it was set back to",
    "watermark_groups": "Who holds a source's watermark back, who is idle, and who is ahead",
}
