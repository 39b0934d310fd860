"""The schemas of the `ops` tables; a column's comment is its documentation in the table."""

import pyarrow as pa

INSTANT = pa.timestamp("us", tz="UTC")


def _column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


RUNS = pa.schema(
    [
        _column("run_id", pa.string(), "Key: one execution of one job"),
        _column("job", pa.string(), "The entry point, such as run_stream"),
        _column("subject", pa.string(), "The source, stream or table it worked on"),
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
        _column("jvm_rss_bytes", pa.int64(), "Most memory the job's JVM held, RocksDB's in it"),
        _column(
            "python_rss_bytes",
            pa.int64(),
            "Most memory its Python processes held together: the driver and the workers",
        ),
        _column(
            "rows_rejected",
            pa.int64(),
            "Stream: of rows_folded, those that the function failed for, in rejected/<stream>; "
            "of a recompute or reseed, those in the interval that it replaced",
        ),
        _column("timeouts_rejected", pa.int64(), "Stream: timeouts that it failed for"),
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
        _column("profile", pa.int64(), "The profile (ops/rocksdb_profiles) it ran with"),
        _column(
            "rows_rejected",
            pa.int64(),
            "Of rows_folded, those that the function failed for, in rejected/<stream>",
        ),
        _column("timeouts_rejected", pa.int64(), "Timeouts that the function failed for"),
        _column("rejected_from", INSTANT, "The first of both, on the fold's clock; null: none"),
        _column("rejected_to", INSTANT, "The last of both; null without any"),
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
        _column(
            "status",
            pa.string(),
            "intent: a reseed has begun; current: the stream runs on it; null: as current, "
            "made by a stream's first run",
        ),
        _column("reseed", pa.string(), "Why it was seeded, such as promote; null: a first run"),
        _column("options", pa.string(), "JSON: what the reseed was asked for"),
        _column("base_savepoint", pa.string(), "The savepoint that was replayed from; null: none"),
        _column("base_until", INSTANT, "The instant of that savepoint; null: from the beginning"),
        _column("seed_savepoint", pa.string(), "The savepoint that its first batch begins with"),
        _column("until", INSTANT, "The instant of that savepoint"),
        _column("bronze_id", pa.string(), "The bronze table (its Delta id) that was replayed"),
        _column("bronze_version", pa.int64(), "All of bronze up to this version is in the seed"),
        _column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        _column("seed_events", pa.int64(), "Bronze rows folded into the seed"),
        _column("seed_excluded", pa.int64(), "Bronze rows before the initial state's as_of"),
        _column("seed_pending", pa.int64(), "Bronze rows at or after until: seeded as pending"),
        _column("switched_at", INSTANT, "When the stream began to run on it; null: a first run"),
        _column("code", pa.string(), "Fingerprint of the stream's code that all of it was made by"),
        _column("code_changed_at", INSTANT, "When a run first wrote by other code; null: never"),
        _column(
            "event_schema",
            pa.string(),
            "The Event record of the newest run that wrote, as Spark DDL; null: of release 0.5",
        ),
        _column(
            "deleted_at",
            INSTANT,
            "When its checkpoint was deleted, some time after it was replaced; of an intent: when "
            "it was given up; null: neither",
        ),
    ]
)

SAVEPOINTS = pa.schema(
    [
        _column("savepoint_id", pa.string(), "Key: also the partition of its rows"),
        _column("stream", pa.string(), "The stream whose state it is"),
        _column("until", INSTANT, "It is the state of all events before this, on the fold's clock"),
        _column("created_at", INSTANT, "When it was written"),
        _column("origin", pa.string(), "live, on_demand, recompute or reseed"),
        _column("generation", pa.int64(), "Live: the generation it was read from"),
        _column("run_id", pa.string(), "The run (ops/runs) that wrote it"),
        _column("path", pa.string(), "The table with its rows, below the lake"),
        _column("keys", pa.int64(), "Its rows, one for each key"),
        _column("checksum", pa.string(), "Sum of the rows' hashes, checked before it is used"),
        _column("events", pa.int64(), "Bronze rows that are folded into it"),
        _column("bronze_id", pa.string(), "The bronze table (its Delta id) they are from"),
        _column("bronze_version", pa.int64(), "The version of bronze that was read up to"),
        _column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        _column(
            "code",
            pa.string(),
            "Fingerprint of the code that made all of it; null when no one code did",
        ),
        _column("state_schema", pa.string(), "The stored key and state, as Spark DDL"),
        _column("deleted_at", INSTANT, "When retention deleted its rows; null: they are there"),
    ]
)

INTERVALS = pa.schema(
    [
        _column("run_id", pa.string(), "Key: the run (ops/runs) that recomputed it"),
        _column("stream", pa.string(), "The stream"),
        _column("kind", pa.string(), "recompute, or reseed: what follows is computed from it, too"),
        _column("start", INSTANT, "Rows emitted from here on; null: from the beginning"),
        _column("until", INSTANT, "Rows emitted before this"),
        _column("recomputed_at", INSTANT, "When"),
        _column("dag_run_id", pa.string(), "The Airflow Dag run; null when started by hand"),
        _column("generation", pa.int64(), "The stream's generation then; of a reseed, its own"),
        _column("base_savepoint", pa.string(), "The savepoint it was replayed from; null: none"),
        _column("base_until", INSTANT, "The instant of that savepoint; null: from the beginning"),
        _column("bronze_id", pa.string(), "The bronze table (its Delta id) that was replayed"),
        _column("bronze_version", pa.int64(), "The version of bronze that was replayed"),
        _column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        _column("code", pa.string(), "Fingerprint of the stream's code"),
        _column("rows_read", pa.int64(), "Bronze rows replayed"),
        _column("rows_before", pa.int64(), "Append: table rows of the interval before"),
        _column("rows_after", pa.int64(), "Append: table rows of the interval after"),
        _column("rows_removed", pa.int64(), "Append: rows that are no longer there"),
        _column("rows_added", pa.int64(), "Append: rows that were not there before"),
        _column("savepoint_id", pa.string(), "The savepoint at its end"),
        _column("seconds", pa.float64(), "How long the replay and the writes took"),
        _column("estimated_seconds", pa.float64(), "What the plan said; null: nothing to go by"),
    ]
)

COVERAGE = pa.schema(
    [
        _column("stream", pa.string(), "Key, with number: whose table it is about"),
        _column("number", pa.int64(), "Of the entry, from 1: later entries override earlier ones"),
        _column(
            "kind",
            pa.string(),
            "live, recompute, reseed (which also takes away what is after it), or void: from here "
            "on nothing earlier counts",
        ),
        _column("from", INSTANT, "Rows emitted from here on; null: from the beginning"),
        _column("until", INSTANT, "Rows emitted before this; null: none is complete yet"),
        _column("generation", pa.int64(), "The stream's generation then; of a reseed, its own"),
        _column("run_id", pa.string(), "The run (ops/runs) that wrote them; live: the first one"),
        _column("delay_us", pa.int64(), "The watermark delay by which later rows were late"),
        _column("codes", pa.string(), "Fingerprints of all code that its fold went through"),
        _column("bronze_id", pa.string(), "The bronze table (its Delta id) that was folded"),
        _column(
            "bronze_version", pa.int64(), "All rows up to this version are in the fold; null: none"
        ),
        _column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        _column("read_version", pa.int64(), "Live: rows up to this that were not late are, too"),
        _column("batch_id", pa.int64(), "Live: the newest batch that is counted in"),
        _column("mapped_from", pa.string(), "The code whose states migrate_state has mapped"),
        _column("table_version", pa.int64(), "The table's version when this was written"),
        _column("reason", pa.string(), "Void: what was found"),
    ]
)

FINDINGS = pa.schema(
    [
        _column("run_id", pa.string(), "The run (ops/runs) that found it"),
        _column("found_at", INSTANT, "When"),
        _column("subject", pa.string(), "The source, stream or table it is about"),
        _column("finding", pa.string(), "What it is: a stable word, such as late_rows"),
        _column("severity", pa.string(), "info, warning, or error: the run failed with it"),
        _column("count", pa.int64(), "How many rows or keys it is about"),
        _column("event_time_from", INSTANT, "Event time of the first of these rows, if they are"),
        _column("event_time_to", INSTANT, "Event time of the last of them"),
        _column("detail", pa.string(), "What it means and what to do, for people"),
        _column("figure", pa.float64(), "What was measured, if it has a limit"),
        _column("limit", pa.float64(), "The limit it was held against"),
        _column(
            "unit",
            pa.string(),
            "Of figure and limit: bytes, files, versions, batches, rows, share, times",
        ),
        _column("action", pa.string(), "What to do about it; null where detail says it"),
    ]
)

CHECKPOINT_SIZES = pa.schema(
    [
        _column("stream", pa.string(), "The stream whose checkpoint was measured"),
        _column("generation", pa.int64(), "The checkpoint's generation"),
        _column("measured_at", INSTANT, "When it was listed"),
        _column("run_id", pa.string(), "The newest run (ops/runs) of the stream by then"),
        _column("occasion", pa.string(), "after_run, before_compaction or after_compaction"),
        _column(
            "part",
            pa.string(),
            "metadata, offsets, commits, sources, state (one row for each partition), "
            "state_metadata, or unknown",
        ),
        _column("operator", pa.int64(), "State: the operator's id; null for other parts"),
        _column("partition", pa.int64(), "State: the partition's number"),
        _column("store", pa.string(), "State: the store's name, such as default"),
        _column("bytes", pa.int64(), "Bytes of all its files, checksum files too"),
        _column("files", pa.int64(), "How many files these are"),
        _column("versions", pa.int64(), "State: versions that can be read"),
        _column("newest_version", pa.int64(), "State: the newest version"),
        _column("snapshots", pa.int64(), "State: full uploads among the versions"),
        _column("newest_snapshot", pa.int64(), "State: version of the newest one; null for none"),
        _column("replay_versions", pa.int64(), "State: change logs a start replays after it"),
        _column("replay_bytes", pa.int64(), "State: bytes of these change logs"),
        _column("garbage_files", pa.int64(), "State: files that a compaction would delete"),
        _column("garbage_bytes", pa.int64(), "State: bytes of these"),
        _column("orphan_files", pa.int64(), "Files that belong to no version: left-overs"),
        _column("orphan_bytes", pa.int64(), "Bytes of these"),
        _column("oldest_needed_at", INSTANT, "When the oldest file was written that a start needs"),
    ]
)

ROCKSDB_PROFILES = pa.schema(
    [
        _column("stream", pa.string(), "Key, with profile"),
        _column("profile", pa.int64(), "Its number, from 1"),
        _column("created_at", INSTANT, "When it was proposed"),
        _column("settings", pa.string(), "JSON: all settings of the profile by name"),
        _column("reason", pa.string(), "Why it differs from the profile before"),
        _column("evidence", pa.string(), "JSON: the figures that the reason stands on"),
        _column("verdict", pa.string(), "default, trial, kept or rolled_back"),
        _column("judged_at", INSTANT, "When the trial was judged; null before"),
        _column("judgement", pa.string(), "Why it was kept or rolled back, with figures"),
    ]
)

TABLE_SIZES = pa.schema(
    [
        _column("run_id", pa.string(), "The run (ops/runs) that measured it; null for ops tables"),
        _column("measured_at", INSTANT, "When"),
        _column("table", pa.string(), "The table, below the lake: tables/user_counts"),
        _column("occasion", pa.string(), "before or after its care"),
        _column("version", pa.int64(), "The table's version"),
        _column("files", pa.int64(), "Data files of that version"),
        _column("bytes", pa.int64(), "Bytes of these"),
        _column("small_files", pa.int64(), "Files among them that OPTIMIZE would join"),
        _column("files_on_disk", pa.int64(), "Data files in the folder, old versions' too"),
        _column("bytes_on_disk", pa.int64(), "Bytes of these"),
        _column("bytes_rewritten", pa.int64(), "After: bytes of the files that OPTIMIZE joined"),
        _column("files_deleted", pa.int64(), "After: files that VACUUM deleted"),
    ]
)

TABLES = pa.schema(
    [
        _column(
            "table",
            pa.string(),
            "Key: a table below the lake, such as bronze/signals; or checkpoints/ingest/<source>, "
            "the file log of that",
        ),
        _column("table_id", pa.string(), "Its Delta id; of a file log, the query's"),
        _column(
            "version", pa.int64(), "Its version after a commit of ours; of a file log, the offset"
        ),
        _column(
            "changed_version", pa.int64(), "At most that: the newest that may have changed rows"
        ),
        _column(
            "rows_by_date", pa.string(), "JSON: partition -> rows; unpartitioned: one, named ''"
        ),
        _column("rows", pa.int64(), "All its rows; of a file log, the files that it has"),
        _column("files_hash", pa.string(), "Of the names of the files of that version"),
        _column(
            "mark",
            pa.string(),
            "What the commit of that version says of itself, or null; of a file log, JSON: the "
            "files that it has lost, and that are not taken again",
        ),
        _column("recorded_at", INSTANT, "When this was seen"),
    ]
)

CLOCK_REPAIRS = pa.schema(
    [
        _column("source", pa.string(), "Key, with repair: whose clock was wrong"),
        _column("repair", pa.int64(), "Its number, from 1"),
        _column("to", INSTANT, "What the clock of bronze is set back to"),
        _column("from", INSTANT, "Where it was"),
        _column("asked_at", INSTANT, "When it was begun"),
        _column("bronze_id", pa.string(), "The bronze table (its Delta id)"),
        _column(
            "reset_version",
            pa.int64(),
            "The version of bronze that set it back; null: not made yet. A stream whose state does "
            "not know all of bronze up to it does not run",
        ),
        _column("reset_at", INSTANT, "ingested_at of that version's row"),
        _column("done_at", INSTANT, "When every stream had been reseeded; null: it is open"),
    ]
)

SCHEMAS = {
    "runs": RUNS,
    "batches": BATCHES,
    "generations": GENERATIONS,
    "findings": FINDINGS,
    "checkpoint_sizes": CHECKPOINT_SIZES,
    "rocksdb_profiles": ROCKSDB_PROFILES,
    "table_sizes": TABLE_SIZES,
    "savepoints": SAVEPOINTS,
    "intervals": INTERVALS,
    "coverage": COVERAGE,
    "tables": TABLES,
    "clock_repairs": CLOCK_REPAIRS,
}
