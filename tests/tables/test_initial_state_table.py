"""Savepoint 0 as a Delta table: what may be in it, and what is refused before a first run."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pytest

from include.fold.admission import LAST_INSTANT_US, MICROSECOND
from include.ingest.initial_state import read_fingerprint, read_initial_state
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


def test_the_rows_of_a_table_are_exact_and_in_the_folds_order(lake):
    later = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    write_table(lake, rows_table(Row("b", HEALTH | {"note": "ä"}, timeout_at=later), Row("a")))
    initial = read_initial_state(lake, STREAM, FOLD)
    assert (initial.as_of_us, initial.fingerprint) == (AS_OF_US, read_fingerprint(lake, STREAM))
    assert collected(initial) == [
        ("a", HEALTH, None),
        ("b", HEALTH | {"note": "ä"}, LAST_INSTANT_US),
    ]
    assert [field.name for field in initial.states.schema.field("state").type] == [*Health._fields]


def test_a_table_need_not_have_timeouts(lake):
    table = rows_table(Row(1), Row(-1), key=pa.int64()).drop_columns(["timeout_at"])
    write_table(lake, table)
    fold = replace(BY_NUMBER, initial_timeout=timedelta(minutes=5))
    initial = read_initial_state(lake, STREAM, fold)
    due_us = AS_OF_US + 300_000_000
    assert collected(initial) == [(-1, HEALTH, due_us), (1, HEALTH, due_us)]
    without = read_initial_state(lake, STREAM, replace(BY_NUMBER, timeout=NO_TIMEOUT.timeout))
    assert collected(without) == [(-1, HEALTH, None), (1, HEALTH, None)]


WITHOUT_NOTE = pa.struct([field for field in STATE if field.name != "note"])
MISSPELT = pa.struct([*WITHOUT_NOTE, ("Note", pa.string())])
SEEN_AS_INT = pa.struct([*(field for field in STATE if field.name != "seen"), ("seen", pa.int32())])


@pytest.mark.parametrize(
    ("table", "part"),
    [
        (rows_table(Row()).append_column("n", [[1]]), "n"),
        (rows_table(Row()).drop_columns(["as_of"]), "as_of"),
        (rows_table(Row(1), key=pa.int64()), "key"),
        (rows_table(Row(state=7), state=pa.int64()), "state"),
        (rows_table(Row(), state=WITHOUT_NOTE), "state.note"),
        (rows_table(Row(), state=MISSPELT), "state.Note"),
        (rows_table(Row(), state=SEEN_AS_INT), "state.seen"),
        (rows_table(Row(as_of=datetime(2026, 3, 1)), as_of=pa.timestamp("us")), "as_of"),  # noqa: DTZ001
        (rows_table(), "as_of"),
        (rows_table(Row("a"), Row("b", as_of=AS_OF + timedelta(microseconds=1))), "as_of"),
        (rows_table(Row(as_of=LAST_INSTANT_US + 1)), "as_of"),
        (rows_table(Row("a"), Row(None)), "key"),
        (rows_table(Row("a"), Row("b", None)), "state"),
        (rows_table(*(Row(key, HEALTH | {"seen": None}) for key in "cb"), Row("a")), "state.seen"),
        (rows_table(Row("a", HEALTH | {"last": [1, None]})), "state.last"),
        (rows_table(Row("a", timeout_at=AS_OF)), "timeout_at"),
        (rows_table(Row(timeout_at=LAST_INSTANT_US + 1)), "timeout_at"),
    ],
)
def test_a_wrong_table_is_refused_with_its_column_or_key(lake, table, part):
    write_table(lake, table)
    assert part in refusal(lake)


def test_a_key_that_comes_twice_is_refused(lake):
    write_table(lake, rows_table(*(Row(key) for key in "gfedcbaabcdefg")))
    assert re.findall(r'"(\w)"', refusal(lake)) == list("abcde")


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


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"home": NOWHERE}, "state.home.city"),
        ({"work": NOWHERE}, "state.work.city"),
        ({"seen": [{"place": None}, None]}, "state.seen"),
        ({"seen": [{"place": HOME}, {"place": NOWHERE}]}, "state.seen"),
        ({"by_day": [("mon", NOWHERE)]}, "state.by_day"),
    ],
)
def test_a_null_within_a_nested_value_is_refused_before_the_first_run(lake, changes, part):
    fold = replace(FOLD, state=Visits)
    write_table(lake, rows_table(Row("a", ALL_RIGHT), state=VISITS))
    assert read_initial_state(lake, STREAM, fold) is not None
    rows = (Row("a", ALL_RIGHT), Row("b", {**ALL_RIGHT, **changes}))
    write_table(lake, rows_table(*rows, state=VISITS), mode="overwrite")
    assert part in refusal(lake, fold)


def test_a_table_of_a_stream_without_timeouts_has_none(lake):
    write_table(lake, rows_table(Row("a", timeout_at=AS_OF + MICROSECOND)))
    assert "timeout_at" in refusal(lake, NO_TIMEOUT)
