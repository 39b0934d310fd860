"""Events with wrong clocks do not move anyone else's lateness: real files, ingested and folded.

Two lakes get the same landings, one of them with odd events as well. Ingestion judges times by
the wall's clock, so all times are around the start of the test.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from include.fold.admission import EPOCH
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing.clock_row import write_clock_row
from include.landing.ingest import ingest
from include.registry import source_named, stream_named
from include.settings import SavepointRules, Stream
from spark_jobs.engines.spark_engine import SparkEngine
from spark_jobs.run_stream import drain

pytestmark = [pytest.mark.spark, pytest.mark.full]

MINUTE = timedelta(minutes=1)
IN_1970 = EPOCH + timedelta(seconds=1)
IN_9999 = datetime(9999, 12, 31, tzinfo=UTC)
# Keys of the odd events; those of all others are 1, 2 and 3.
OLD_AT_FIRST, OLD, AHEAD, FAR_AHEAD, LAST_YEAR = 70, 71, 59, 120, 99
NORMAL = (1, 2, 3)


class Case(NamedTuple):
    stream: Stream
    key: str
    line: Callable[[int, datetime], dict[str, Any]]
    key_of: Callable[[int], Any]


def signal(device: int, time: datetime) -> dict[str, Any]:
    return {"device_id": device, "timestamp": time.isoformat(), "value": 1}


def click(user: int, time: datetime) -> dict[str, Any]:
    event = {"user_id": str(user), "event_type": "click", "value": 1.0}
    return event | {"event_time": time.isoformat()}


CASES = [
    Case(stream_named("device_signals"), "device_id", signal, int),
    Case(stream_named("user_sessions"), "user_id", click, str),
]
Happened = tuple[int, datetime]


def landings(start: datetime) -> list[list[Happened]]:
    """Two landings, of which the second is much within what the streams wait."""
    early = [(key, start - minute * MINUTE) for key in NORMAL for minute in (20, 16)]
    prompt = [(key, start - key * MINUTE / 2) for key in NORMAL]
    return [early, prompt]


def odd_events(start: datetime) -> list[list[Happened]]:
    """What comes with each of the landings in the other lake."""
    ahead = (AHEAD, start + 59 * MINUTE)
    return [
        [(OLD_AT_FIRST, IN_1970), ahead, (FAR_AHEAD, start + 120 * MINUTE), (LAST_YEAR, IN_9999)],
        [(OLD, IN_1970), ahead],
    ]


def run_lake(
    spark: SparkSession, root: Path, case: Case, landed: Sequence[Sequence[Happened]], end: datetime
) -> Lake:
    """Ingest and fold each landing, and at last what waits, by a clock row of the instant `end`."""
    root.mkdir()
    lake = Lake(str(root))
    source = replace(source_named(case.stream.source), clock_grace=None)
    few = {"buckets": 4, "state_partitions": 2, "savepoints": SavepointRules(cadence=None)}
    stream = replace(case.stream, **few)
    for number, events in enumerate(landed):
        path = Path(lake.landing(source.name)) / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(case.line(*event))}\n" for event in events))
        os.utime(path, (number + 1, number + 1))
        ingest(lake, source)
        drain(SparkEngine(spark), lake, stream)
    write_clock_row(lake, replace(source, clock_grace=timedelta(0), max_clock_step=None), None, end)
    drain(SparkEngine(spark), lake, stream)
    return lake


def rows_by_key(lake: Lake, case: Case) -> dict[Any, list[tuple[Any, ...]]]:
    rows = DeltaTable(lake.table(case.stream.name)).to_pyarrow_table().to_pylist()
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[case.key], []).append(tuple(row.values()))
    return {key: sorted(rows) for key, rows in found.items()}


def rows_late(lake: Lake) -> int:
    runs = read_ops(lake, "runs").to_pylist()
    return sum(run["rows_late"] for run in runs if run["job"] == "run_stream")


def first_commit(lake: Lake, source: str) -> tuple[datetime, datetime]:
    """The watermark of bronze's first commit, and when that was ingested."""
    bronze = DeltaTable(lake.bronze(source)).to_pyarrow_table().sort_by("ingested_at")
    return bronze["commit_watermark"][0].as_py(), bronze["ingested_at"][0].as_py()


def refusals(lake: Lake, source: str) -> list[str]:
    return DeltaTable(lake.quarantine(source)).to_pyarrow_table()["reason_code"].to_pylist()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stream.name)
def test_odd_clocks_do_not_move_the_lateness_of_others(spark, tmp_path, case):
    start = datetime.now(UTC)
    usual, odd, end = landings(start), odd_events(start), start + timedelta(hours=3)
    mixed = [one + other for one, other in zip(usual, odd, strict=True)]
    twin = run_lake(spark, tmp_path / "twin", case, usual, end)
    lake = run_lake(spark, tmp_path / "odd", case, mixed, end)

    found, expected = rows_by_key(lake, case), rows_by_key(twin, case)
    normal = {case.key_of(key) for key in NORMAL}
    assert {key: found.get(key) for key in normal} == expected
    assert set(expected) == normal
    assert (rows_late(twin), rows_late(lake)) == (0, 1)
    # In the first commit nothing is late, whatever its time; later, what is of 1970 is.
    assert set(found) - normal == {case.key_of(OLD_AT_FIRST), case.key_of(AHEAD)}

    assert refusals(lake, case.stream.source) == ["future_time", "future_time"]
    watermark, ingested_at = first_commit(lake, case.stream.source)
    assert watermark == ingested_at < start + 59 * MINUTE
