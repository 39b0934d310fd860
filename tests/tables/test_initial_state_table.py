"""Savepoint 0 as a Delta table: what may be in it, and what is refused before a first run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pytest

from include.fold.admission import LAST_INSTANT_US, MICROSECOND
from include.landing.initial_state import read_fingerprint
from spark_jobs.tables.initial_state import read_initial_state
from tests.initial_state import (
    AS_OF,
    AS_OF_US,
    BY_NUMBER,
    FOLD,
    HEALTH,
    NO_TIMEOUT,
    STATE,
    STREAM,
    Health,
    Row,
    collected,
    refusal,
    rows_table,
    write_table,
)


@pytest.mark.spark
def test_the_rows_of_a_table_are_exact_and_in_the_folds_order(spark, lake):
    later = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    write_table(lake, rows_table(Row("b", HEALTH | {"note": "ä"}, timeout_at=later), Row("a")))
    initial = read_initial_state(spark, lake, STREAM, FOLD)
    assert (initial.as_of_us, initial.fingerprint) == (AS_OF_US, read_fingerprint(lake, STREAM))
    assert collected(initial) == [
        ("a", HEALTH, None),
        ("b", HEALTH | {"note": "ä"}, LAST_INSTANT_US),
    ]
    assert initial.rows.schema["state"].dataType.names == list(Health._fields)


@pytest.mark.spark
def test_a_table_need_not_have_timeouts(spark, lake):
    table = rows_table(Row(1), Row(-1), key=pa.int64()).drop_columns(["timeout_at"])
    write_table(lake, table)
    fold = replace(BY_NUMBER, initial_timeout=timedelta(minutes=5))
    initial = read_initial_state(spark, lake, STREAM, fold)
    due_us = AS_OF_US + 300_000_000
    assert collected(initial) == [(-1, HEALTH, due_us), (1, HEALTH, due_us)]
    without = read_initial_state(
        spark, lake, STREAM, replace(BY_NUMBER, timeout=NO_TIMEOUT.timeout)
    )
    assert collected(without) == [(-1, HEALTH, None), (1, HEALTH, None)]


WITHOUT_NOTE = pa.struct([field for field in STATE if field.name != "note"])
MISSPELT = pa.struct([*WITHOUT_NOTE, ("Note", pa.string())])
SEEN_AS_INT = pa.struct([*(field for field in STATE if field.name != "seen"), ("seen", pa.int32())])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("table", "said"),
    [
        (rows_table(Row()).append_column("n", [[1]]), "has a column n, which is not known: drop"),
        (rows_table(Row()).drop_columns(["as_of"]), "has no column as_of timestamp: add it"),
        (
            rows_table(Row()).drop_columns(["key", "state"]),
            "has no column key string, state struct",
        ),
        (rows_table(Row(1), key=pa.int64()), "column key is bigint, expected string: write"),
        (rows_table(Row(state=7), state=pa.int64()), "column state is bigint, expected struct<st"),
        (rows_table(Row(), state=WITHOUT_NOTE), "has no column state.note string: add it"),
        (rows_table(Row(), state=MISSPELT), "has a column state.Note, which is not known: drop"),
        (rows_table(Row(), state=SEEN_AS_INT), "column state.seen is int, expected bigint: write"),
        (
            rows_table(Row(as_of=datetime(2026, 3, 1)), as_of=pa.timestamp("us")),  # noqa: DTZ001
            "column as_of is timestamp_ntz, expected timestamp",
        ),
        (rows_table(Row(timeout_at=7), timeout_at=pa.int64()), "column timeout_at is bigint"),
        (rows_table(), "has no rows, so its as_of is not known: add them, or give a file"),
        (rows_table(Row("a"), Row("b", as_of=None)), "as_of is null in 1 row: give the same"),
        (
            rows_table(Row("a"), Row("b", as_of=AS_OF + timedelta(microseconds=1))),
            "as_of differs between rows, from 2026-03-01 00:00:00.000001+00:00 to 2026-03-01 "
            "00:00:00.000002+00:00",
        ),
        (rows_table(Row(as_of=LAST_INSTANT_US + 1)), "as_of is outside the years 1 to 9999"),
        (rows_table(Row("a"), Row(None)), "key is null in 1 row"),
        (rows_table(Row("a"), Row("b", None)), 'key "b": state is null (in 1 row): mend them'),
        (
            rows_table(*(Row(key, HEALTH | {"seen": None}) for key in "cb"), Row("a")),
            'key "b": state.seen is null (in 2 rows)',
        ),
        (rows_table(Row("a", HEALTH | {"last": None})), 'key "a": state.last is null'),
        (rows_table(Row("a", HEALTH | {"last": [1, None]})), "state.last has a null in it"),
        (rows_table(Row("a", timeout_at=AS_OF)), 'key "a": timeout_at is not after as_of'),
        (rows_table(Row(timeout_at=LAST_INSTANT_US + 1)), "timeout_at is beyond the year 9999"),
        (
            rows_table(*(Row(key) for key in "gfedcbaabcdefg")),
            'several rows for 7 of its keys ("a", "b", "c", "d", "e", ...): leave one row of each',
        ),
    ],
)
def test_a_wrong_table_is_refused_with_its_column_or_key(spark, lake, table, said):
    write_table(lake, table)
    assert said in refusal(spark, lake)


class Place(NamedTuple):
    city: str
    floor: int | None


class Visit(NamedTuple):
    place: Place | None


class Visits(NamedTuple):
    home: Place
    work: Place | None
    seen: tuple[Visit, ...]
    by_day: dict[str, Place | None]


A_PLACE = pa.struct([("city", pa.string()), ("floor", pa.int64())])
VISITS = pa.struct(
    [
        ("home", A_PLACE),
        ("work", A_PLACE),
        ("seen", pa.list_(pa.struct([("place", A_PLACE)]))),
        ("by_day", pa.map_(pa.string(), A_PLACE)),
    ]
)
HOME = {"city": "Ulm", "floor": None}
NOWHERE = {"city": None, "floor": 1}
ALL_RIGHT = {
    "home": HOME,
    "work": None,
    "seen": [{"place": None}, {"place": HOME}],
    "by_day": [("mon", HOME), ("sun", None)],
}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"home": NOWHERE}, "state.home.city is null"),
        ({"work": NOWHERE}, "state.work.city is null"),
        ({"seen": [{"place": None}, None]}, "state.seen has a null in it"),
        ({"seen": [{"place": HOME}, {"place": NOWHERE}]}, "state.seen has a null in it"),
        ({"by_day": [("mon", NOWHERE)]}, "state.by_day has a null in it"),
    ],
)
def test_a_null_within_a_nested_value_is_refused_before_the_first_run(spark, lake, changes, said):
    fold = replace(FOLD, state=Visits)
    write_table(lake, rows_table(Row("a", ALL_RIGHT), state=VISITS))
    assert read_initial_state(spark, lake, STREAM, fold) is not None
    rows = (Row("a", ALL_RIGHT), Row("b", {**ALL_RIGHT, **changes}))
    write_table(lake, rows_table(*rows, state=VISITS), mode="overwrite")
    assert f'key "b": {said} (in 1 row)' in refusal(spark, lake, fold)


@pytest.mark.spark
def test_a_table_of_a_stream_without_timeouts_has_none(spark, lake):
    write_table(lake, rows_table(Row("a", timeout_at=AS_OF + MICROSECOND)))
    message = refusal(spark, lake, NO_TIMEOUT)
    assert 'key "a": timeout_at is given, but the stream has no timeouts (NoTimeout)' in message
