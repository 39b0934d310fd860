"""Savepoint 0: where it is looked for, what may be in it, the timeouts of its keys, and what pins it."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.fold.admission import LAST_INSTANT_US, MICROSECOND
from include.fold.records import columns_of
from include.ingest.initial_state import read_fingerprint, read_initial_state
from include.lake.columns import arrow_type
from include.lake.paths import Lake
from tests.initial_state import (
    AS_OF,
    AS_OF_TEXT,
    AS_OF_US,
    BY_NUMBER,
    FIVE_MINUTES,
    FOLD,
    HEALTH,
    NO_TIMEOUT,
    STATE,
    STREAM,
    Health,
    Row,
    a_key,
    collected,
    document,
    refusal,
    rows_table,
    write_file,
    write_table,
)
from tests.refused import refused


def test_a_stream_without_an_initial_state_has_none(lake):
    assert read_initial_state(lake, STREAM, FOLD) is None
    assert read_fingerprint(lake, STREAM) is None


def test_a_table_and_a_file_are_one_too_many(lake):
    write_table(lake, rows_table(Row()))
    write_file(lake, document())
    assert lake.initial_state_file(STREAM) in refusal(lake)


def test_what_is_neither_a_table_nor_a_file_is_not_passed_over(lake):
    Path(lake.initial_state(STREAM)).mkdir(parents=True)
    assert refusal(lake)
    (Path(lake.initial_state(STREAM)) / "_delta_log").mkdir()
    assert refusal(lake)
    shutil.rmtree(lake.initial_state(STREAM))
    Path(lake.initial_state_file(STREAM)).mkdir()
    assert refusal(lake)


def test_a_key_that_names_no_timeout_gets_the_streams(lake):
    write_file(lake, document(a_key("a", "2026-03-01T00:00:07Z"), a_key("b")))
    initial = read_initial_state(lake, STREAM, FIVE_MINUTES)
    timeouts = [timeout_us - AS_OF_US for _, _, timeout_us in collected(initial)]
    assert timeouts == [6_999_999, 300_000_000]


def test_a_timeout_of_the_stream_that_is_no_span_is_refused_when_it_is_defined():
    with refused("wrong_definition", subject="initial_timeout"):
        replace(FOLD, initial_timeout=timedelta(0))


def test_a_files_fingerprint_is_that_of_its_content(lake):
    keys = [a_key("a"), a_key("b", seen=4)]
    path = write_file(lake, document(*keys))
    fingerprint = read_fingerprint(lake, STREAM)
    assert fingerprint.startswith("sha256:")
    turned = {"keys": [dict(reversed(key.items())) for key in reversed(keys)], "as_of": AS_OF_TEXT}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(turned, indent=8).encode())
    assert read_fingerprint(lake, STREAM) == fingerprint
    for other in (document(keys[0]), document(*keys, as_of="2026-03-02T00:00:00Z")):
        write_file(lake, other)
        assert read_fingerprint(lake, STREAM) != fingerprint
    path.write_text("{")
    with refused("wrong_initial_state"):
        read_fingerprint(lake, STREAM)


def append(lake: Lake, key: str) -> str:
    """The fingerprint after another commit of rows."""
    write_table(lake, rows_table(Row(key)), mode="append")
    return read_fingerprint(lake, STREAM)


def test_a_tables_fingerprint_names_the_last_change_of_its_rows(lake):
    assert append(lake, "a") == f"{DeltaTable(lake.initial_state(STREAM)).metadata().id}@0"
    second = append(lake, "b")
    table = DeltaTable(lake.initial_state(STREAM))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    assert table.version() > 2
    assert read_fingerprint(lake, STREAM) == second
    table.delete("key = 'b'")
    third = read_fingerprint(lake, STREAM)
    assert third != second
    table.delete()  # all of a file: nothing is added
    assert read_fingerprint(lake, STREAM) not in (second, third)
    shutil.rmtree(lake.initial_state(STREAM))
    assert append(lake, "a").partition("@")[0] != second.partition("@")[0]


def test_commits_that_delta_has_deleted_do_not_change_a_pinned_fingerprint(lake):
    first, pinned = append(lake, "a"), append(lake, "b")
    table = DeltaTable(lake.initial_state(STREAM))
    table.optimize.compact()
    table.create_checkpoint()
    for version in (0, 1):
        (Path(lake.initial_state(STREAM)) / f"_delta_log/{version:020}.json").unlink()
    assert read_fingerprint(lake, STREAM, pinned) == pinned
    assert read_fingerprint(lake, STREAM, first) == first  # nothing is left that says otherwise
    assert read_fingerprint(lake, STREAM) == pinned  # the newest change that there can have been
    table.optimize.compact()
    for other in ("other@1", pinned.replace("@1", "@9"), "sha256:0"):
        assert read_fingerprint(lake, STREAM, other) == pinned
    assert append(lake, "c") not in (first, pinned)
    assert read_fingerprint(lake, STREAM, pinned) != pinned


def test_a_table_is_read_as_it_was_and_after_an_optimize_and_a_vacuum(lake):
    pinned = [append(lake, key) for key in "ab"][-1]
    table = DeltaTable(lake.initial_state(STREAM))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)  # the files of version 1
    initial = read_initial_state(lake, STREAM, FOLD)
    append(lake, "c")
    assert [key for key, _, _ in collected(initial)] == ["a", "b"]
    assert initial.fingerprint == pinned


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


VISITS = pa.struct([(column.name, arrow_type(column.kind)) for column in columns_of(Visits)])
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
