"""The schemas of the `ops` tables that say what states and tables were made from."""

import pyarrow as pa

from include.lake.ops_columns import INSTANT, ops_column

SAVEPOINTS = pa.schema(
    [
        ops_column("savepoint_id", pa.string(), "Key: also the partition of its rows"),
        ops_column("stream", pa.string(), "The stream whose state it is"),
        ops_column(
            "until", INSTANT, "It is the state of all events before this, on the fold's clock"
        ),
        ops_column("created_at", INSTANT, "When it was written"),
        ops_column("origin", pa.string(), "live, on_demand, recompute or reseed"),
        ops_column("generation", pa.int64(), "Live: the generation it was read from"),
        ops_column("run_id", pa.string(), "The run (ops/runs) that wrote it"),
        ops_column("path", pa.string(), "The table with its rows, below the lake"),
        ops_column("keys", pa.int64(), "Its rows, one for each key"),
        ops_column("checksum", pa.string(), "Sum of the rows' hashes, checked before it is used"),
        ops_column("events", pa.int64(), "Bronze rows that are folded into it"),
        ops_column("bronze_id", pa.string(), "The bronze table (its Delta id) they are from"),
        ops_column("bronze_version", pa.int64(), "The version of bronze that was read up to"),
        ops_column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        ops_column(
            "code",
            pa.string(),
            "Fingerprint of the code that made all of it; null when no one code did",
        ),
        ops_column("state_schema", pa.string(), "The stored key and state, as Spark DDL"),
        ops_column("deleted_at", INSTANT, "When retention deleted its rows; null: they are there"),
    ]
)

INTERVALS = pa.schema(
    [
        ops_column("run_id", pa.string(), "Key: the run (ops/runs) that recomputed it"),
        ops_column("stream", pa.string(), "The stream"),
        ops_column(
            "kind", pa.string(), "recompute, or reseed: what follows is computed from it, too"
        ),
        ops_column("start", INSTANT, "Rows emitted from here on; null: from the beginning"),
        ops_column("until", INSTANT, "Rows emitted before this"),
        ops_column("recomputed_at", INSTANT, "When"),
        ops_column(
            "dag_run_id",
            pa.string(),
            "The Airflow Dag run; null when started by hand; `joined with` another one until its own "
            "has taken it",
        ),
        ops_column("generation", pa.int64(), "The stream's generation then; of a reseed, its own"),
        ops_column("base_savepoint", pa.string(), "The savepoint it was replayed from; null: none"),
        ops_column(
            "base_until", INSTANT, "The instant of that savepoint; null: from the beginning"
        ),
        ops_column("bronze_id", pa.string(), "The bronze table (its Delta id) that was replayed"),
        ops_column("bronze_version", pa.int64(), "The version of bronze that was replayed"),
        ops_column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        ops_column("code", pa.string(), "Fingerprint of the stream's code"),
        ops_column("rows_read", pa.int64(), "Bronze rows replayed"),
        ops_column("rows_before", pa.int64(), "Append: table rows of the interval before"),
        ops_column("rows_after", pa.int64(), "Append: table rows of the interval after"),
        ops_column("rows_removed", pa.int64(), "Append: rows that are no longer there"),
        ops_column("rows_added", pa.int64(), "Append: rows that were not there before"),
        ops_column("savepoint_id", pa.string(), "The savepoint at its end"),
        ops_column("seconds", pa.float64(), "How long the replay and the writes took"),
        ops_column("estimated_seconds", pa.float64(), "What the plan said; null: nothing to go by"),
        ops_column("told_at", INSTANT, "When the Asset's event had told of it; null: never"),
    ]
)

COVERAGE = pa.schema(
    [
        ops_column("stream", pa.string(), "Key, with number: whose table it is about"),
        ops_column(
            "number", pa.int64(), "Of the entry, from 1: later entries override earlier ones"
        ),
        ops_column(
            "kind",
            pa.string(),
            "live, recompute, reseed (which also takes away what is after it), or void: from here "
            "on nothing earlier counts",
        ),
        ops_column("from", INSTANT, "Rows emitted from here on; null: from the beginning"),
        ops_column("until", INSTANT, "Rows emitted before this; null: none is complete yet"),
        ops_column("generation", pa.int64(), "The stream's generation then; of a reseed, its own"),
        ops_column(
            "run_id", pa.string(), "The run (ops/runs) that wrote them; live: the first one"
        ),
        ops_column("delay_us", pa.int64(), "The watermark delay by which later rows were late"),
        ops_column("codes", pa.string(), "Fingerprints of all code that its fold went through"),
        ops_column("bronze_id", pa.string(), "The bronze table (its Delta id) that was folded"),
        ops_column(
            "bronze_version", pa.int64(), "All rows up to this version are in the fold; null: none"
        ),
        ops_column("bronze_ingested_at", INSTANT, "The newest ingested_at of that version"),
        ops_column("read_version", pa.int64(), "Live: rows up to this that were not late are, too"),
        ops_column(
            "read_commit",
            pa.string(),
            "That version, and a hash of its commit in the log of bronze",
        ),
        ops_column("batch_id", pa.int64(), "Live: the newest batch that is counted in"),
        ops_column("mapped_from", pa.string(), "The code whose states migrate_state has mapped"),
        ops_column("table_version", pa.int64(), "The table's version when this was written"),
        ops_column("table_commit", pa.string(), "A hash of that version's commit in the log"),
        ops_column("reason", pa.string(), "Void: what was found"),
    ]
)

TABLES = pa.schema(
    [
        ops_column(
            "table",
            pa.string(),
            "Key: a table below the lake, such as bronze/signals or ingested_files/signals",
        ),
        ops_column("table_id", pa.string(), "Its Delta id"),
        ops_column("version", pa.int64(), "Its version after a commit of ours"),
        ops_column(
            "changed_version", pa.int64(), "At most that: the newest that may have changed rows"
        ),
        ops_column(
            "rows_by_date", pa.string(), "JSON: partition -> rows; unpartitioned: one, named ''"
        ),
        ops_column("rows", pa.int64(), "All its rows"),
        ops_column("files_hash", pa.string(), "Of the names of the files of that version"),
        ops_column("mark", pa.string(), "What the commit of that version says of itself, or null"),
        ops_column("recorded_at", INSTANT, "When this was seen"),
    ]
)

CLOCK_REPAIRS = pa.schema(
    [
        ops_column("source", pa.string(), "Key, with repair: whose clock was wrong"),
        ops_column("repair", pa.int64(), "Its number, from 1"),
        ops_column("to", INSTANT, "What the clock of bronze is set back to"),
        ops_column("from", INSTANT, "Where it was"),
        ops_column("asked_at", INSTANT, "When it was begun"),
        ops_column("bronze_id", pa.string(), "The bronze table (its Delta id)"),
        ops_column(
            "reset_version",
            pa.int64(),
            "The version of bronze that set it back; null: not made yet. A stream whose state does "
            "not know all of bronze up to it does not run",
        ),
        ops_column("reset_at", INSTANT, "ingested_at of that version's row"),
        ops_column("done_at", INSTANT, "When every stream had been reseeded; null: it is open"),
    ]
)

ERASURES = pa.schema(
    [
        ops_column("source", pa.string(), "Key, with erasure: of whose bronze a key was erased"),
        ops_column("erasure", pa.int64(), "Its number, from 1"),
        ops_column("fields", pa.string(), "JSON: the fields of bronze that the key has"),
        ops_column("salt", pa.string(), "Hex; with it and the key the hash can be made again"),
        ops_column("key_hash", pa.string(), "scrypt of the key under that salt: no key is kept"),
        ops_column("asked_at", INSTANT, "When it was begun"),
        ops_column("rows_bronze", pa.int64(), "Rows of bronze that were of the key"),
        ops_column("rows_quarantined", pa.int64(), "Rows of quarantine that named it"),
        ops_column("files_landed", pa.int64(), "Landed files with such rows, which are deleted"),
        ops_column("bronze_id", pa.string(), "The bronze table (its Delta id)"),
        ops_column(
            "bronze_version",
            pa.int64(),
            "The version of bronze without the key; null: not made yet. A stream whose state does not "
            "begin with that or a later one does not run",
        ),
        ops_column("done_at", INSTANT, "When nothing of the key was left; null: it is open"),
    ]
)

WATERMARK_GROUPS = pa.schema(
    [
        ops_column("source", pa.string(), "Key, with group: one that has watermark_per"),
        ops_column(
            "group", pa.string(), "The value of watermark_per, or the folder; '': of no folder"
        ),
        ops_column(
            "newest_event_time",
            INSTANT,
            "The newest least(event_time, ingested_at) of its rows, floored to milliseconds",
        ),
        ops_column("last_seen_at", INSTANT, "ingested_at of its newest rows"),
        ops_column(
            "is_idle", pa.bool_(), "Silent for idle_after: the watermark does not wait for it"
        ),
        ops_column(
            "is_least", pa.bool_(), "The least of those not idle: the watermark waits for it"
        ),
        ops_column(
            "ahead_seconds",
            pa.float64(),
            "How far newest_event_time is ahead of the watermark; below 0: behind it",
        ),
        ops_column("measured_at", INSTANT, "When an ingest run last found this changed"),
    ]
)
