"""From landed files to tables, cut in several ways, against SQL over the same files."""

import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from include.lake import Lake
from include.ops import read_ops
from include.sample_data import Options, generate
from include.streams import Stream, source_named, stream_named
from spark_jobs.ingest_source import ingest
from spark_jobs.run_stream import drain

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, tzinfo=UTC)
# Rows come at most 5 minutes late, half of what the streams wait: nothing may be lost.
SAMPLE = Options(
    start=START,
    keys=30,
    events=1_500,
    span_hours=12,
    disorder_minutes=5,
    late_share=0,
    malformed_share=0.03,
    duplicate_share=0.03,
)
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
ORACLES = {
    "user_counts": f"WITH {USER_EVENTS} SELECT key, count(*), max(time) FROM events GROUP BY key",
    "user_sessions": f"""
        WITH {USER_EVENTS}, begun AS (
            SELECT *, time - lag(time, 1, time) OVER own >= 1_800_000_000 AS begins
            FROM events WINDOW own AS (PARTITION BY key ORDER BY time)
        ), numbered AS (
            SELECT *, count_if(begins) OVER (PARTITION BY key ORDER BY time) AS session FROM begun
        )
        SELECT key, min(time), max(time), count(*), max(time) + 1_800_000_000
        FROM numbered GROUP BY key, session HAVING max(time) + 1_800_000_000 < $until_us
    """,
    # Above a limit of 1 is the event whose first before it is in the span, the second not.
    "threshold_alerts": f"""
        WITH {USER_EVENTS}, spans AS (
            SELECT key, time, time - 600_000_000 AS start,
                   lag(time, 1) OVER own AS first, lag(time, 2) OVER own AS second
            FROM events WHERE type = 'purchase' WINDOW own AS (PARTITION BY key ORDER BY time)
        )
        SELECT key, 'purchase', 2, start, time FROM spans
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
    "threshold_alerts": ["user_id", "event_type", "count", "span_start", "emitted_at"],
    "device_signals": ["device_id", "count", "emitted_at"],
    "service_health": ["service", "status", "emitted_at"],
}


def micros(instant: datetime) -> int:
    return int(instant.timestamp()) * 1_000_000 + instant.microsecond


def land_in_parts(lake: Lake, source: str, parts: int, staging: Path) -> list[list[Path]]:
    """The sample's files, cut at random into so many landings, in the order they were made."""
    generate(Lake(str(staging)), source_named(source), SAMPLE)
    files = sorted(Path(Lake(str(staging)).landing(source)).iterdir())
    cuts = sorted(random.Random(parts).sample(range(1, len(files)), parts - 1))
    return [files[a:b] for a, b in zip([0, *cuts], [*cuts, len(files)], strict=True)]


def land(lake: Lake, source: str, files: list[Path]) -> None:
    folder = Path(lake.landing(source))
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)


def table_rows(lake: Lake, stream: str) -> Counter[Any]:
    rows = DeltaTable(lake.table(stream)).to_pyarrow_table(columns=COLUMNS[stream]).to_pylist()
    return Counter(tuple(map(plain, row.values())) for row in rows)


def plain(value: Any) -> Any:
    return micros(value) if isinstance(value, datetime) else value


def oracle_rows(lake: Lake, source: str, stream: str, until_us: int) -> Counter[Any]:
    files = [str(file) for file in Path(lake.landing(source)).iterdir()]
    with duckdb.connect() as connection:
        rows = connection.execute(ORACLES[stream], {"files": files, "until_us": until_us})
        return Counter(rows.fetchall())


def position(lake: Lake) -> int:
    """The instant before which the table is complete, in microseconds."""
    runs = [run for run in read_ops(lake, "runs").to_pylist() if run["job"] == "run_stream"]
    assert sum(run["rows_late"] for run in runs) == 0
    return micros(max(run["until"] for run in runs))


def check_table(lake: Lake, stream: Stream) -> None:
    expected = oracle_rows(lake, stream.source, stream.name, position(lake))
    assert expected.total() > 0
    assert table_rows(lake, stream.name) == expected


# The update stream and the one with a clock in all cuts; each other one in that which also cuts
# what a run ingests.
CASES = [(name, parts) for name in ("user_counts", "service_health") for parts in (1, 3, 10)]
CASES += [(name, 3) for name in ("user_sessions", "threshold_alerts", "device_signals")]


@pytest.mark.parametrize(("name", "parts"), CASES)
def test_tables_equal_sql_over_the_landed_files_however_they_are_cut(
    spark, lake, tmp_path, name, parts
):
    stream = replace(stream_named(name), buckets=8, state_partitions=2)
    if name == "threshold_alerts":
        stream = replace(stream, settings={**stream.settings, "limit": 1})
    # The sample is months old: a clock row after its first part would make the others late.
    source = replace(source_named(stream.source), clock_grace=None)
    if parts == 3:  # so that ingest cuts what one run takes in, too
        source = replace(source, commit_bytes=20_000)
    for files in land_in_parts(lake, source.name, parts, tmp_path / "staging"):
        land(lake, source.name, files)
        ingest(spark, lake, source)
        drain(spark, lake, stream)
    check_table(lake, stream)
    if name == "service_health":
        check_silence(spark, lake, stream)


def check_silence(spark: SparkSession, lake: Lake, stream: Stream) -> None:
    """An hour after the last line, with nothing new landed, every service is stale."""
    source, end = source_named(stream.source), START + timedelta(hours=SAMPLE.span_hours + 1)
    ingest(spark, lake, source, interval_end=end)
    drain(spark, lake, stream)
    settled = end - source.clock_grace - stream.watermark_delay
    assert position(lake) == micros(settled) + 1
    check_table(lake, stream)
    changes = sorted(table_rows(lake, stream.name), key=lambda change: change[2])
    last = {service: status for service, status, _ in changes}
    assert len(last) == SAMPLE.keys
    assert set(last.values()) == {"stale"}
