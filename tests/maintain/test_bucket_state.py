"""The bytes of a key as Arrow has them, and what rows of states come to."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from include.fold.definition import Deduplicate
from include.fold.records import columns_of
from include.fold.states import States
from include.lake.columns import arrow_type
from include.observe.state_report import RANKS, format_report, report_of, timer_column, value_bytes
from include.stream.checkpoint import CommittedBatch
from include.streams.user_sessions import OpenSession, define
from spark_jobs.inspect_state import measure_states

DEFINED = define(gap=timedelta(minutes=30))
BATCH = CommittedBatch(1, "checkpoint", 3, watermark_ms=1_000, next_watermark_ms=5)


class Wide(NamedTuple):
    """A state with a column of each kind but booleans, which Arrow packs."""

    number: int
    share: float
    note: str
    times_us: tuple[int, ...]
    shares: tuple[float, ...]
    names: tuple[str, ...]


def a_wide_state(rng: random.Random) -> Wide:
    def some(make: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple(make() for _ in range(rng.choice([0, 1, 7, 8, 9, 64, 65, 130])))

    def text() -> str:
        return "é" * rng.randrange(4) + "x" * rng.randrange(12)

    return Wide(
        rng.getrandbits(40),
        rng.random(),
        text(),
        some(lambda: rng.getrandbits(40)),
        some(rng.random),
        some(text),
    )


def array_of(states: list[Any], record: type = Wide) -> pa.Array:
    fields = [pa.field(c.name, arrow_type(c.kind), c.nullable) for c in columns_of(record)]
    kind = pa.struct(fields)
    return pa.array([None if state is None else state._asdict() for state in states], kind)


def test_the_bytes_of_values_are_those_of_arrows_buffers():
    rng = random.Random(3)
    states = array_of([a_wide_state(rng) for _ in range(64)])
    own = value_bytes(states)
    assert sum(own) == states.nbytes
    assert len(set(own)) > 10
    # A value's bytes are its own: neither a slice nor a neighbour changes them.
    assert value_bytes(states.slice(10, 5)).tolist() == own[10:15].tolist()
    with_null = pa.concat_arrays([states, array_of([None])])
    assert value_bytes(with_null)[:-1].tolist() == own.tolist()
    assert value_bytes(with_null)[-1] == 8 + 8 + 4 * 4


@pytest.mark.spark
def test_timers_and_quantiles_of_many_are_those_of_their_rows(spark):
    """Keys with a state and timers; some of which only a value is known."""
    fold = replace(
        DEFINED,
        timers=("reminder", "expiry"),
        deduplicate=Deduplicate(by="event_time_us", within=timedelta(hours=1)),
    )
    times = np.random.default_rng(3).integers(0, 9_000, 20_000).tolist()
    states = States(fold)
    for number, at_us in enumerate(times):
        extra = (((1, 1_000), (2, 1_001)), (3_000, None))
        states.put(f"{number:05}", OpenSession(1, 1, 1), at_us, at_us, extra)
    states.put("bob", None, 0, extra=(((1, 1_000),), None))
    rows = spark.createDataFrame(states.rows()).withColumn("bucket", F.lit(0))
    measured = measure_states(rows, fold, BATCH)
    found = [measured[None][name] for name in ("seen", timer_column("reminder"), "due")]
    assert found == [2 * len(times) + 1, len(times), sum(at_us <= 5_000 for at_us in times)]
    report = report_of("s", fold, BATCH, (1, 1), measured, {})
    ages = np.sort(1_000_000 - np.array(times))
    assert (report.age_us["least"], report.age_us["most"]) == (ages[0], ages[-1])
    for share, age in ((0.5, report.age_us["median"]), (0.99, report.age_us["p99"])):
        first, last = (np.searchsorted(ages, age, side=side) for side in ("left", "right"))
        assert first / len(ages) - 1 / RANKS <= share <= last / len(ages) + 1 / RANKS
    assert [key["key"] for key in report.biggest_keys] == [f"{number:05}" for number in range(10)]
    shown = [line.split() for line in format_report(report).splitlines()]
    assert ["timers.expiry", "0"] in shown
    assert ["seen_values", f"{2 * len(times) + 1:,}"] in shown
