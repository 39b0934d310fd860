"""Streams in a lake of real Delta and RocksDB, and what the local engine makes of their events."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from deltalake import DeltaTable

from include.fold.admission import micros_of
from include.lake.ops import read_ops
from include.registry import stream_named
from include.settings import SavepointRules
from include.streams import user_counts
from include.streams.device_signals import Signal
from include.streams.user_counts import UserEvent
from spark_jobs.engines.state_rows import read_states
from tests.bronze import stamp
from tests.fold.local import LocalFold

MINUTE_US = 60_000_000
START_US = 1_750_000_000_000_000
# Without savepoints, which cost a first run five seconds: tests/stream has them.
SMALL: Any = {"buckets": 5, "state_partitions": 2, "savepoints": SavepointRules(cadence=None)}
SIGNALS = replace(stream_named("device_signals"), **SMALL)
COUNTS = replace(stream_named("user_counts"), **SMALL)
DELAY_US = SIGNALS.watermark_delay // timedelta(microseconds=1)


def make_commits(event: Any, seed: int, commits: int = 10, size: int = 40) -> list[list[Any]]:
    """Ten minutes of events a commit, some out of order, some too late, many at one instant."""
    rng = random.Random(seed)
    made = []
    for number in range(commits):
        base = START_US + number * 10 * MINUTE_US
        times = [base + rng.randrange(-15, 11) * MINUTE_US + rng.randrange(2) for _ in range(size)]
        made.append([event(rng, time_us) for time_us in times])
    return made


def signal(rng: random.Random, time_us: int) -> Signal:
    return Signal(rng.randrange(12), time_us, rng.randrange(3))


def user_event(rng: random.Random, time_us: int) -> UserEvent:
    return UserEvent(f"user {rng.randrange(12)}", time_us)


# For the tests that begin where a stream has run already (tests/engines/conftest.py).
COUNTED = stamp(make_commits(user_event, seed=5, commits=3))


def table_rows(lake, stream, fold) -> Counter[Any]:
    names = [column.name for column in fold.output_columns]
    rows = DeltaTable(lake.table(stream.name)).to_pyarrow_table().to_pylist()
    return Counter((tuple(row[n] for n in names), micros_of(row["emitted_at"])) for row in rows)


def expected_rows(engine: LocalFold, fold) -> Counter[Any]:
    if fold.output_mode == "append":
        pairs = zip(engine.emitted.rows, engine.emitted.emitted_at_us, strict=True)
        return Counter((tuple(row), at_us) for row, at_us in pairs)
    states = engine.states().values()
    return Counter((tuple(fold.project(s.key, s.state)), s.changed_at_us) for s in states)


def local_run(fold, stamped) -> LocalFold:
    engine = LocalFold(fold, DELAY_US)
    for rows in stamped:
        engine.run_batch(rows)
    return engine


def stored_states(spark, lake, stream, fold) -> dict[Any, tuple[int, int]]:
    rows = read_states(spark, lake.checkpoint(stream.name, 1), fold).collect()
    return {row["key"]: (row["state"][0], row["changed_at_us"]) for row in rows}


def version_and_state(spark, lake) -> tuple[Any, ...]:
    return (
        DeltaTable(lake.table(COUNTS.name)).version(),
        stored_states(spark, lake, COUNTS, user_counts.FOLD),
        read_ops(lake, "batches").num_rows,
    )
