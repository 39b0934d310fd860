"""The schemas of the `ops` tables of care: what state and tables come to, and RocksDB's settings."""

import pyarrow as pa

from include.lake.ops_columns import INSTANT, ops_column

CHECKPOINT_SIZES = pa.schema(
    [
        ops_column("stream", pa.string(), "The stream whose checkpoint was measured"),
        ops_column("generation", pa.int64(), "The checkpoint's generation"),
        ops_column("measured_at", INSTANT, "When it was listed"),
        ops_column("run_id", pa.string(), "The newest run (ops/runs) of the stream by then"),
        ops_column("occasion", pa.string(), "after_run, before_compaction or after_compaction"),
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
        ops_column("versions", pa.int64(), "State: versions that can be read"),
        ops_column("newest_version", pa.int64(), "State: the newest version"),
        ops_column("snapshots", pa.int64(), "State: full uploads among the versions"),
        ops_column(
            "newest_snapshot", pa.int64(), "State: version of the newest one; null for none"
        ),
        ops_column("replay_versions", pa.int64(), "State: change logs a start replays after it"),
        ops_column("replay_bytes", pa.int64(), "State: bytes of these change logs"),
        ops_column("garbage_files", pa.int64(), "State: files that a compaction would delete"),
        ops_column("garbage_bytes", pa.int64(), "State: bytes of these"),
        ops_column("orphan_files", pa.int64(), "Files that belong to no version: left-overs"),
        ops_column("orphan_bytes", pa.int64(), "Bytes of these"),
        ops_column(
            "oldest_needed_at", INSTANT, "When the oldest file was written that a start needs"
        ),
    ]
)

ROCKSDB_PROFILES = pa.schema(
    [
        ops_column("stream", pa.string(), "Key, with profile"),
        ops_column("profile", pa.int64(), "Its number, from 1"),
        ops_column("created_at", INSTANT, "When it was proposed"),
        ops_column("settings", pa.string(), "JSON: all settings of the profile by name"),
        ops_column("reason", pa.string(), "Why it differs from the profile before"),
        ops_column("evidence", pa.string(), "JSON: the figures that the reason stands on"),
        ops_column("verdict", pa.string(), "default, trial, kept or rolled_back"),
        ops_column("judged_at", INSTANT, "When the trial was judged; null before"),
        ops_column("judgement", pa.string(), "Why it was kept or rolled back, with figures"),
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

TABLE_SIZES = pa.schema(
    [
        ops_column(
            "run_id", pa.string(), "The run (ops/runs) that measured it; null for ops tables"
        ),
        ops_column("measured_at", INSTANT, "When"),
        ops_column("table", pa.string(), "The table, below the lake: tables/user_counts"),
        ops_column("occasion", pa.string(), "before or after its care"),
        ops_column("version", pa.int64(), "The table's version"),
        ops_column("files", pa.int64(), "Data files of that version"),
        ops_column("bytes", pa.int64(), "Bytes of these"),
        ops_column("small_files", pa.int64(), "Files among them that OPTIMIZE would join"),
        ops_column("files_on_disk", pa.int64(), "Data files in the folder, old versions' too"),
        ops_column("bytes_on_disk", pa.int64(), "Bytes of these"),
        ops_column("bytes_rewritten", pa.int64(), "After: bytes of the files that OPTIMIZE joined"),
        ops_column("files_deleted", pa.int64(), "After: files that VACUUM deleted"),
    ]
)
