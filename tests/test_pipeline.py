"""From landed files to tables, cut in several ways, against SQL over the same files."""

import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from include.lake import Lake
from include.ops import read_ops
from include.sample_data import Options, generate
from include.streams import source_named, stream_named
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
ORACLES = {
    "user_counts": f"""
        WITH accepted AS ({ACCEPTED}), events AS (
            SELECT row->>'user_id' AS key, TRY_CAST(rtrim(row->>'event_time', 'Z') AS TIMESTAMP) AS time
            FROM accepted
            WHERE json_type(row, '$.user_id') = 'VARCHAR'
              AND json_type(row, '$.event_type') = 'VARCHAR'
              AND json_type(row, '$.value') IN ('DOUBLE', 'BIGINT', 'UBIGINT')
              AND (row->>'event_time') LIKE '%Z' AND time < '2027-01-01'
        )
        SELECT key, count(*), epoch_us(max(time)) FROM events
        WHERE epoch_us(time) < $until_us GROUP BY key
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
}
COLUMNS = {
    "user_counts": ["user_id", "total_count", "emitted_at"],
    "device_signals": ["device_id", "count", "emitted_at"],
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
    return Counter((*list(row.values())[:2], micros(row["emitted_at"])) for row in rows)


def oracle_rows(lake: Lake, source: str, stream: str, until_us: int) -> Counter[Any]:
    files = [str(file) for file in Path(lake.landing(source)).iterdir()]
    with duckdb.connect() as connection:
        rows = connection.execute(ORACLES[stream], {"files": files, "until_us": until_us})
        return Counter(rows.fetchall())


@pytest.mark.parametrize("parts", [1, 3, 10])
@pytest.mark.parametrize("name", ["device_signals", "user_counts"])
def test_tables_equal_sql_over_the_landed_files_however_they_are_cut(
    spark, lake, tmp_path, name, parts
):
    stream = replace(stream_named(name), buckets=8, state_partitions=2)
    source = source_named(stream.source)
    if parts == 3:  # so that ingest cuts what one run takes in, too
        source = replace(source, commit_bytes=20_000)
    for files in land_in_parts(lake, source.name, parts, tmp_path / "staging"):
        land(lake, source.name, files)
        ingest(spark, lake, source)
        drain(spark, lake, stream)

    runs = [run for run in read_ops(lake, "runs").to_pylist() if run["job"] == "run_stream"]
    until_us = micros(max(run["until"] for run in runs))
    assert sum(run["rows_late"] for run in runs) == 0
    expected = oracle_rows(lake, source.name, name, until_us)
    assert expected.total() > 0
    assert table_rows(lake, name) == expected
