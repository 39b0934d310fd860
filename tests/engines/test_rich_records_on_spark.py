"""Records of every type on Spark: live with either writer, a savepoint, a replay from it."""

import random
import sys
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark import cloudpickle

from include.fold.admission import instant_of
from include.fold.definition import state_rows_ddl
from include.fold.records import Instant
from include.registry import stream_named
from include.settings import SavepointRules, Stream
from spark_jobs import run_stream
from spark_jobs.engines.spark_engine import SparkEngine, replay_fold
from spark_jobs.write_savepoint import write_savepoint
from tests.bronze import stamp
from tests.declared import with_fold
from tests.engines.lake_runs import (
    MICROSECOND,
    admitted_live,
    arriving,
    drained,
    known_in,
    outputs_of,
    stored,
    table_of,
    with_conf,
)
from tests.fold import rich_orders
from tests.fold.arrivals import came_to, run
from tests.fold.local import LocalFold
from tests.fold.oracle import until
from tests.fold.rich_orders import FOLDS, Item, Order, Status
from tests.written_savepoint import MANIFEST

pytestmark = [pytest.mark.spark, pytest.mark.turn(2)]
for module in (sys.modules[__name__], rich_orders):
    cloudpickle.register_pickle_by_value(module)

DELAY = timedelta(milliseconds=5)


def order(rng: random.Random, time_us: int) -> Order:
    item = Item(rng.choice(["x", "y", None]), rng.choice([Decimal("1.10"), None]), ("p", None))
    return Order(
        country=rng.choice(["DE", "de", "FR", "ÆØ"]),
        customer=rng.choice([None, 1, 2, -3]),
        amount=Decimal(rng.randrange(-999, 999)).scaleb(-2),
        paid=rng.choice([True, False]),
        status=rng.choice(list(Status)),
        items=rng.choice([None, (), (item, None), (item,)]),
        notes=rng.choice([None, {}, {"b": -0.0, "a": None}]),
        raw=rng.randbytes(rng.randrange(3)),
        day=date(1969, 12, 31) + timedelta(days=rng.randrange(3)),
        created=instant_of(time_us - rng.randrange(3)),
        shipped=rng.choice([None, Instant(time_us)]),
        event_time_us=time_us,
    )


def stream_of(fold: Any) -> Stream:
    stream = replace(
        stream_named("user_counts"),
        source="orders",
        watermark_delay=DELAY,
        buckets=5,
        state_partitions=2,
        savepoints=SavepointRules(cadence=None),
    )
    return with_fold(stream, fold)


@pytest.mark.parametrize(
    ("name", "is_small"),
    [
        pytest.param("append by two columns", False, marks=pytest.mark.e2e),
        ("update by a function", True),
        pytest.param("update by two columns", False, marks=pytest.mark.e2e),
    ],
)
def test_spark_comes_to_what_the_local_engine_says(spark, lake, monkeypatch, name, is_small):
    monkeypatch.setattr(run_stream, "is_small", lambda _: is_small)
    fold, stream = FOLDS[name], stream_of(FOLDS[name])
    stamped = stamp(arriving(7, order, commits=4, size=12))
    drained(spark, lake, stream, fold, stamped, runs=2)

    local = LocalFold(fold, DELAY // MICROSECOND, buckets=3)
    expected = came_to(fold, run(local, stamped))
    assert expected.late
    assert expected.pending
    assert table_of(lake, stream, fold) == expected.table
    assert stored(spark, lake, stream, fold) == expected.states


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["append by two columns", "append by a function"])
def test_a_replay_goes_on_from_a_savepoint(spark, lake, name):
    fold, stream = replace(FOLDS[name], stream="orders"), stream_of(FOLDS[name])
    engine = SparkEngine(spark)
    stamped = stamp(arriving(8, order, commits=4, size=12))
    drained(spark, lake, stream, fold, stamped, runs=1)
    end_us = until([row for rows in stamped for row in rows], DELAY // MICROSECOND)
    middle_us = stamped[2][0].time_us

    with with_conf(spark, "spark.sql.shuffle.partitions", "2"):
        first = replay_fold(admitted_live(spark, lake, stream, fold), fold, 3, middle_us)
        made = MANIFEST | {"state_schema": state_rows_ddl(fold)}
        savepoint = write_savepoint(engine, lake, first.states, fold, middle_us, **made)
        assert savepoint.keys > 0
        base = engine.savepoint_states(lake, savepoint)
        rest = admitted_live(spark, lake, stream, fold, middle_us)
        second = replay_fold(rest, fold, 4, end_us, base=base)
        emitted = outputs_of(first.outputs, fold) + outputs_of(second.outputs, fold)
        assert emitted == Counter(table_of(lake, stream, fold))
        assert known_in(second.states, fold) == stored(spark, lake, stream, fold)
