"""The bytes of a key as Arrow has them, and quantiles over keys of which a bucket tells some."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from include.care.state_report import (
    POINTS,
    format_report,
    measure_bucket,
    report_of,
    value_bytes,
)
from include.checkpoint.committed_batch import CommittedBatch
from include.fold.deduplicate import Deduplicate
from include.fold.keys import bucket_ids
from include.fold.records import columns_of
from include.fold.states import States
from include.lake.columns import arrow_type
from include.streams.user_counts import FOLD
from include.streams.user_sessions import OpenSession, define
from spark_jobs.engines.state_rows import states_to_rows

DEFINED = define(gap=timedelta(minutes=30))
BATCH = CommittedBatch(1, "checkpoint", 3, watermark_ms=1_000, next_watermark_ms=1_000)


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
    beside_nothing = pa.concat_arrays([states, array_of([None])])
    assert value_bytes(beside_nothing)[:-1].tolist() == own.tolist()
    assert value_bytes(beside_nothing)[-1] == 8 + 8 + 4 * 4


def bucket_of(number: int, times_us: list[int]) -> pa.Table:
    """A bucket of counts, changed and timing out at these instants."""
    keys = [f"user {number} {at}" for at in range(len(times_us))]
    return pa.table(
        {
            "bucket": pa.array([number] * len(keys), pa.int32()),
            "key": keys,
            "state": [{"total_count": at} for at in range(len(keys))],
            "changed_at_us": pa.array(times_us, pa.int64()),
            "timeout_at_us": pa.array(times_us, pa.int64()),
        }
    )


def test_many_keys_in_uneven_buckets_have_quantiles_near_the_true_ones():
    rng = np.random.default_rng(3)
    sizes = dict(zip(bucket_ids(4, 2), (40_000, 3_000, POINTS, 7), strict=True))
    # Buckets of other ages, so that one bucket's points say nothing of another's keys.
    times = {n: rng.integers(0, 1_000 * (9 + n), size) for n, size in sizes.items()}
    measured = [measure_bucket(bucket_of(n, at_us.tolist()), 5_000) for n, at_us in times.items()]
    report = report_of("user_counts", FOLD, BATCH, (4, 2), measured, {})
    ages = np.sort(1_000_000 - np.concatenate(list(times.values())))
    spread = report.age_us
    assert (spread["least"], spread["most"]) == (ages[0], ages[-1])
    for share, age in ((0.5, spread["median"]), (0.9, spread["p90"]), (0.99, spread["p99"])):
        first, last = (np.searchsorted(ages, age, side=side) for side in ("left", "right"))
        assert first / len(ages) - 1 / POINTS <= share <= last / len(ages) + 1 / POINTS
    assert report.timeouts["due"] == sum((at_us < 5_000).sum() for at_us in times.values()) > 0
    assert all(len(part.sizes.points) <= POINTS for part in measured)
    longest = max(len(f"user {number} {size - 1}") for number, size in sizes.items())
    assert len(report.biggest_keys[0]["key"]) == longest


def test_what_lies_beside_states_is_counted_and_shown():
    """A key with a state and timers; one of which only a value is known."""
    fold = replace(
        DEFINED,
        timers=("reminder", "expiry"),
        deduplicate=Deduplicate(by="event_time_us", within=timedelta(hours=1)),
    )
    states = States(fold)
    states.put("ann", OpenSession(1, 1, 1), 1_000, 2_000, (((1, 1_000), (2, 1_001)), (3_000, None)))
    states.put("bob", None, 0, beside=(((1, 1_000),), None))
    measured = measure_bucket(states_to_rows(states, 0), None)
    assert (measured.seen, measured.timers) == (3, {"reminder": 1, "expiry": 0})
    assert all({"seen", "timers"}.isdisjoint(row) for row in measured.biggest)
    text = format_report(report_of("s", fold, BATCH, (1, 1), [measured], {}))
    rows = [line.split() for line in text.splitlines()]
    told = (("keys", "2"), ("timers.reminder", "1"), ("timers.expiry", "0"), ("seen_values", "3"))
    for row in told:
        assert list(row) in rows
