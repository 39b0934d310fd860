"""What the tables of the shipped streams must hold, in SQL over the files that have landed."""

from collections import Counter
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyarrow import fs

from include.fold.admission import micros_of
from include.lake.paths import Lake
from include.registry import stream_named
from include.settings import Stream

# What a landed line must be, said once more in SQL. The generator's bad lines break one each.
ACCEPTED = """
    SELECT line::JSON AS row FROM read_csv(
        $files, columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '',
        header = false, auto_detect = false
    ) WHERE json_valid(line)
"""
USER_EVENTS = f"""
    accepted AS ({ACCEPTED}), events AS (
        SELECT row->>'user_id' AS key, row->>'event_type' AS type,
               epoch_us(TRY_CAST(rtrim(row->>'event_time', 'Z') AS TIMESTAMP)) AS time
        FROM accepted
        WHERE json_type(row, '$.user_id') = 'VARCHAR'
          AND json_type(row, '$.event_type') = 'VARCHAR'
          AND json_type(row, '$.value') IN ('DOUBLE', 'BIGINT', 'UBIGINT')
          AND (row->>'event_time') LIKE '%Z' AND time < epoch_us('2027-01-01'::TIMESTAMP)
          AND time < $until_us
    )
"""
SESSIONS = f"""
    WITH {USER_EVENTS}, begun AS (
        SELECT *, time - lag(time, 1, time) OVER own >= 1_800_000_000 AS begins
        FROM events WINDOW own AS (PARTITION BY key ORDER BY time)
    ), numbered AS (
        SELECT *, count_if(begins) OVER (PARTITION BY key ORDER BY time) AS session FROM begun
    ), sessions AS (
        SELECT key, min(time) AS start, max(time) AS last, count(*), last + 1_800_000_000 AS ended
        FROM numbered GROUP BY key, session HAVING ended < $until_us
    )
"""
STREAKS = f"""
    {SESSIONS}, apart AS (
        SELECT *, ended - lag(ended, 1, ended) OVER own > 7_200_000_000 AS begins
        FROM sessions WINDOW own AS (PARTITION BY key ORDER BY ended)
    ), in_streaks AS (
        SELECT *, count_if(begins) OVER (PARTITION BY key ORDER BY ended) AS streak FROM apart
    ), streaks AS (
        SELECT key, min(start), count(*) AS sessions, max(i.ended) + 7_200_000_000 AS ended
        FROM in_streaks i GROUP BY key, streak HAVING max(i.ended) + 7_200_000_000 < $until_us
    )
"""
CHAIN = ("user_sessions", "session_streaks", "streak_alerts")  # each reads the one before
ORACLES = {
    "user_counts": f"WITH {USER_EVENTS} SELECT key, count(*), max(time) FROM events GROUP BY key",
    "user_sessions": f"{SESSIONS} SELECT * FROM sessions",
    "session_streaks": f"{STREAKS} SELECT * FROM streaks",
    "streak_alerts": f"""
        {STREAKS}, records AS (
            SELECT *, coalesce(max(sessions) OVER earlier, 0) AS before FROM streaks
            WINDOW earlier AS (
                PARTITION BY key ORDER BY ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )
        )
        SELECT key, sessions, before, ended FROM records WHERE sessions >= 5 AND sessions > before
    """,
    # The one that goes above the limit: its limit-th before it is in the span, the next is not.
    "threshold_alerts": f"""
        WITH {USER_EVENTS}, spans AS (
            SELECT key, time, time - 600_000_000 AS start,
                   lag(time, $limit) OVER own AS first,
                   lag(time, $limit + 1) OVER own AS second
            FROM events WHERE type = 'purchase' WINDOW own AS (PARTITION BY key ORDER BY time)
        )
        SELECT key, 'purchase', $limit + 1, start, time FROM spans
        WHERE first > start AND (second IS NULL OR second <= start)
    """,
    "device_signals": f"""
        WITH accepted AS ({ACCEPTED}), events AS (
            SELECT (row->>'device_id')::BIGINT AS key,
                   TRY_CAST(rtrim(row->>'timestamp', 'Z') AS TIMESTAMP) AS time
            FROM accepted
            WHERE json_type(row, '$.device_id') IN ('BIGINT', 'UBIGINT')
              AND json_type(row, '$.value') IN ('BIGINT', 'UBIGINT')
              AND (row->>'timestamp') LIKE '%Z' AND time < '2027-01-01'
        )
        SELECT key, row_number() OVER (PARTITION BY key ORDER BY time), epoch_us(time)
        FROM events WHERE epoch_us(time) < $until_us
    """,
    "service_health": f"""
        WITH accepted AS ({ACCEPTED}), lines AS (
            SELECT row->>'service' AS key,
                   epoch_us(TRY_CAST(rtrim(row->>'timestamp', 'Z') AS TIMESTAMP)) AS time
            FROM accepted
            WHERE json_type(row, '$.service') = 'VARCHAR'
              AND coalesce(json_type(row, '$.level'), 'NULL') IN ('VARCHAR', 'NULL')
              AND coalesce(json_type(row, '$.message'), 'NULL') IN ('VARCHAR', 'NULL')
              AND (row->>'timestamp') LIKE '%Z' AND time < epoch_us('2027-01-01'::TIMESTAMP)
              AND time < $until_us
        ), gaps AS (
            SELECT key, time + 300_000_000 AS stale_at,
                   lead(time) OVER (PARTITION BY key ORDER BY time) AS next
            FROM lines
        ), silent AS (SELECT * FROM gaps WHERE stale_at < coalesce(next, $until_us))
        SELECT key, 'stale', stale_at FROM silent
        UNION ALL SELECT key, 'ok', next FROM silent WHERE next IS NOT NULL
    """,
}
COLUMNS = {
    "user_counts": ["user_id", "total_count", "emitted_at"],
    "user_sessions": ["user_id", "session_start", "session_end", "events", "emitted_at"],
    "session_streaks": ["user_id", "streak_start", "sessions", "emitted_at"],
    "streak_alerts": ["user_id", "sessions", "before", "emitted_at"],
    "threshold_alerts": ["user_id", "event_type", "count", "span_start", "emitted_at"],
    "device_signals": ["device_id", "count", "emitted_at"],
    "service_health": ["service", "status", "emitted_at"],
}


def table_rows(lake: Lake, stream: str) -> Counter[Any]:
    rows = DeltaTable(lake.table(stream)).to_pyarrow_table(columns=COLUMNS[stream]).to_pylist()
    return Counter(tuple(map(plain, row.values())) for row in rows)


def plain(value: Any) -> Any:
    return micros_of(value) if isinstance(value, datetime) else value


def oracle_rows(lake: Lake, stream: Stream, until_us: int) -> Counter[Any]:
    """The rows that the stream's table must hold when it is complete until then."""
    values: dict[str, Any] = {"until_us": until_us}
    if stream.name == "threshold_alerts":
        values["limit"] = stream.settings["limit"]
    root = CHAIN[0] if stream.name in CHAIN else stream.name
    landed = lake.path_in_filesystem(lake.landing(stream_named(root).source))
    with TemporaryDirectory() as folder, duckdb.connect() as connection:
        # From wherever the lake is: DuckDB opens no object store without fetching an extension.
        fs.copy_files(landed, folder, lake.filesystem, fs.LocalFileSystem())
        values["files"] = [str(file) for file in Path(folder).iterdir()]
        return Counter(connection.execute(ORACLES[stream.name], values).fetchall())
