"""Savepoint 0 as a JSON file: what may be in it, and what is refused before a first run."""

import json
from datetime import UTC, datetime

import pytest

from include.fold.admission import EPOCH, MICROSECOND
from spark_jobs.tables.initial_state import read_initial_state
from tests.initial_state import (
    AS_OF_TEXT,
    AS_OF_US,
    BY_NUMBER,
    FIVE_MINUTES,
    FOLD,
    HEALTH,
    NO_TIMEOUT,
    STREAM,
    a_key,
    collected,
    document,
    refusal,
    write_file,
)


# Wrong files are refused without a JVM: there is no session in these tests.
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON: Expecting value"),
        ("[" * 100_000, "is not JSON: "),
        ('{"as_of": NaN, "keys": []}', "NaN is no JSON number"),
        ('{"as_of": "x", "keys": [], "keys": []}', 'an object has "keys" 2 times'),
        ([], "it is [], expected an object"),
        (document() | {"asof": 1}, "asof is not known: take it out, or spell it as one of as_of"),
        ({"keys": []}, "as_of is missing: add it"),
        (document() | {"keys": {}}, "keys is {}, expected a list"),
        (document(as_of=None), "as_of is null, expected ISO-8601 with a zone"),
        (document(as_of=1_772_323_200), "as_of is 1772323200, expected ISO-8601 with a zone"),
        (document(as_of="2026-03-01T00:00:00"), "expected ISO-8601 with a zone, as 2026-03-01T"),
        (document(as_of="2026-03-01T00:00:00.0000001Z"), "expected a time in whole microseconds"),
        (document(as_of="9999-12-31T23:59:59-05:00"), "expected a time in the years 1 to 9999"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_says_what_it_should_be(lake, content, said):
    write_file(lake, content)
    assert said in refusal(None, lake)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (7, "row 2: it is 7, expected an object"),
        ({"state": HEALTH}, "row 2: key is missing"),
        ({"key": "b"}, 'row 2 (key "b"): state is missing'),
        (a_key("b") | {"until": 1}, "until is not known: take it out, or spell it as one of key"),
        (a_key("b") | {"state": None}, 'row 2 (key "b"): state is null, expected an object'),
        (a_key(None), "row 2 (key null): key is null, expected string"),
        (a_key("\ud800"), "expected string"),
        (a_key("b", sale=True), "state.sale is not known: take it out, or spell it as one of"),
        ({"key": "b", "state": {"stale": True}}, "state.seen is missing: add it"),
        (
            {"key": "b", "state": {k: v for k, v in HEALTH.items() if k != "note"}},
            "state.note is missing",
        ),
        (a_key("b", stale=0), 'row 2 (key "b"): state.stale is 0, expected boolean'),
        (a_key("b", seen=True), "state.seen is true, expected bigint"),
        (a_key("b", seen=2**63), "state.seen is 9223372036854775808, expected bigint"),
        (a_key("b", load="1"), 'state.load is "1", expected double'),
        (a_key("b", note=1), "state.note is 1, expected string"),
        (a_key("b", last=1), "state.last is 1, expected array<bigint>"),
        (a_key("b", last=[1, 2.0]), "state.last[1] is 2.0, expected bigint"),
        (a_key("b", AS_OF_TEXT), "but it must be after as_of"),
        (a_key("b", "9999-12-31T23:59:59-05:00"), "timeout_at is "),
    ],
)
def test_a_wrong_row_of_a_file_is_named_with_its_number_and_key(lake, wrong, said):
    write_file(lake, document(a_key("a"), wrong))
    message = refusal(None, lake)
    assert said in message
    assert "row 2" in message


def test_a_number_that_only_a_float_could_not_hold_is_refused(lake):
    text = json.dumps(document(a_key(load=0.5)))
    write_file(lake, text.replace("0.5", "1e999"))
    assert "state.load is Infinity, expected double" in refusal(None, lake)


@pytest.mark.parametrize("key", [True, 1.0, "1", 2**63])
def test_a_key_is_of_the_streams_own_type(lake, key):
    write_file(lake, document(a_key(key)))
    assert f"key is {json.dumps(key)}, expected bigint" in refusal(None, lake, BY_NUMBER)


def test_keys_given_twice_are_listed_up_to_five(lake):
    write_file(lake, document(*(a_key(key) for key in "abcdefgg" * 2)))
    message = refusal(None, lake)
    assert 'several rows for 7 of its keys ("a", "b", "c", "d", "e", ...): leave one' in message
    write_file(lake, document(a_key("b"), a_key("a"), a_key("b")))
    assert 'several rows for 1 of its keys ("b"): leave one' in refusal(None, lake)


def test_a_stream_without_timeouts_takes_none(lake):
    write_file(lake, document(a_key("a", "2026-03-02T00:00:00Z")))
    message = refusal(None, lake, NO_TIMEOUT)
    assert 'row 1 (key "a"): the stream has no timeouts (NoTimeout): take timeout_at out' in message


@pytest.mark.spark
def test_the_rows_of_a_file_are_exact(spark, lake):
    last_us = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    write_file(
        lake,
        document(
            a_key("a", "2026-03-01T01:00:00.000002+01:00", load=2, last=[]),
            a_key("b", "9999-12-31T23:59:59.999999Z", seen=2**63 - 1, note="ä"),
            {"key": "c", "state": HEALTH},
        ),
    )
    initial = read_initial_state(spark, lake, STREAM, FOLD)
    assert initial.as_of_us == AS_OF_US
    assert collected(initial) == [
        ("a", HEALTH | {"load": 2.0, "last": []}, AS_OF_US + 1),
        ("b", HEALTH | {"seen": 2**63 - 1, "note": "ä"}, last_us),
        ("c", HEALTH, None),
    ]
    columns = ("key", "state", "timeout_at_us")
    assert initial.states.select(*columns).schema.simpleString() == (
        "struct<key:string,state:struct<stale:boolean,seen:bigint,load:double,last:array<bigint>,"
        "note:string>,timeout_at_us:bigint>"
    )


@pytest.mark.spark
def test_a_file_without_keys_only_says_since_when_events_count(spark, lake):
    write_file(lake, document(as_of="2026-03-01T00:00Z"))
    initial = read_initial_state(spark, lake, STREAM, FIVE_MINUTES)
    assert (EPOCH + initial.as_of_us * MICROSECOND).isoformat() == "2026-03-01T00:00:00+00:00"
    assert collected(initial) == []
