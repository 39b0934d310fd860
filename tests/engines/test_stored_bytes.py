"""A key's bytes, as `./stateful inspect` counts them, held against the size of Spark's own rows."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from include.fold.ddl import keys_ddl, state_rows_ddl, states_ddl
from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.streams.user_sessions import UserEvent
from spark_jobs.engines.state_report import stored_bytes

pytestmark = pytest.mark.spark


class Wide(NamedTuple):
    """A state with a column of each kind."""

    number: int
    share: float
    seen: bool
    note: str | None
    times_us: tuple[int, ...]
    shares: tuple[float, ...]
    flags: tuple[bool, ...]
    names: tuple[str, ...]


def nothing(key: Any, events: Any, state: Any) -> Iterator[Any]:
    return iter(())


WIDE = flat_map_groups_with_state(
    nothing,
    key="user_id",
    event=UserEvent,
    state=Wide,
    output=UserEvent,
    output_mode="append",
    timeout="EventTimeTimeout",
)
KEYS_OF_A_WORD = 64  # of nulls: their bits fill whole words, and so do their booleans


def a_wide_state(rng: random.Random) -> Wide:
    def some(make: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple(make() for _ in range(rng.choice([0, 1, 7, 8, 9, 64, 65, 130])))

    def text() -> str:
        return "é" * rng.randrange(4) + "x" * rng.randrange(12)

    return Wide(
        rng.getrandbits(40),
        rng.random(),
        rng.random() < 0.5,
        rng.choice([None, text()]),
        some(lambda: rng.getrandbits(40)),
        some(rng.random),
        some(lambda: rng.random() < 0.5),
        some(text),
    )


@pytest.mark.parametrize(
    "fold",
    [WIDE, pytest.param(replace(WIDE, timeout="NoTimeout"), marks=pytest.mark.full)],
    ids=["timed", "plain"],
)
def test_a_keys_bytes_are_what_it_adds_to_sparks_own_rows(spark, fold):
    rng = random.Random(3)
    keys = [f"user {'y' * rng.randrange(20)}{n}" for n in range(KEYS_OF_A_WORD)]
    states = [a_wide_state(rng) for _ in keys]
    rows = [(0, key, state, 1, 1) for key, state in zip(keys, states, strict=True)]
    frame = spark.createDataFrame(rows, state_rows_ddl(fold))
    bytes_of_keys = [row[0] for row in frame.select(stored_bytes(fold)).collect()]

    once = sum(unsafe_bytes(spark, row, ddl) for row, ddl in stored_rows(fold, keys, states))
    twice = sum(
        unsafe_bytes(spark, row, ddl) for row, ddl in stored_rows(fold, keys * 2, states * 2)
    )
    arrays = 1 + len(Wide._fields) + 1 + fold.times_out
    assert twice - once == sum(bytes_of_keys) + 8 * arrays  # a word of null bits each
    assert len(set(bytes_of_keys)) > 10


def stored_rows(fold: KeyedFold, keys: list[str], states: list[Wide]) -> Iterator[tuple[Any, str]]:
    """A bucket's values in the state store, with their types."""
    columns = tuple(list(column) for column in zip(*states, strict=True))
    times = ([1] * len(keys),) * (1 + fold.times_out)
    yield (keys,), keys_ddl(fold)
    yield (columns, *times), states_ddl(fold)


def unsafe_bytes(spark: SparkSession, row: Any, ddl: str) -> int:
    frame = spark.createDataFrame([row], ddl)
    return int(frame._jdf.queryExecution().toRdd().first().getSizeInBytes())
