"""Savepoint 0 as a JSON file: what may be in it, and what is refused before a first run."""

import json
from datetime import UTC, datetime

import pytest

from include.fold.admission import EPOCH, MICROSECOND
from include.ingest.initial_state import read_initial_state
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


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"as_of": NaN, "keys": []}', "NaN"),
        ([], "[]"),
        (document() | {"asof": 1}, "asof"),
        ({"keys": []}, "as_of"),
        (document() | {"keys": {}}, "keys"),
        (document(as_of=None), "as_of"),
        (document(as_of=1_772_323_200), "1772323200"),
        (document(as_of="2026-03-01T00:00:00"), "2026-03-01T00:00:00"),
        (document(as_of="9999-12-31T23:59:59-05:00"), "as_of"),
        (document(as_of="9999-12-31T23:59:59Z"), "future"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_refused_with_what_is_wrong(lake, content, named):
    write_file(lake, content)
    assert named in refusal(lake)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (7, "row 2"),
        ({"state": HEALTH}, "key"),
        ({"key": "b"}, "state"),
        (a_key("b") | {"until": 1}, "until"),
        (a_key("b") | {"state": None}, "state"),
        (a_key(None), "key"),
        (a_key("\ud800"), "key"),
        (a_key("b", sale=True), "state.sale"),
        ({"key": "b", "state": {"stale": True}}, "state.seen"),
        ({"key": "b", "state": {k: v for k, v in HEALTH.items() if k != "note"}}, "state.note"),
        (a_key("b", seen=2**63), "state.seen"),
        (a_key("b", last=1), "state.last"),
        (a_key("b", last=[1, 2.0]), "state.last[1]"),
        (a_key("b", "9999-12-31T23:59:59-05:00"), "timeout_at"),
    ],
)
def test_a_wrong_row_of_a_file_is_named_with_its_number_and_its_part(lake, wrong, named):
    write_file(lake, document(a_key("a"), wrong))
    message = refusal(lake)
    assert "row 2" in message
    assert named in message


@pytest.mark.parametrize("key", [True, 1.0, "1", 2**63])
def test_a_key_is_of_the_streams_own_type(lake, key):
    write_file(lake, document(a_key(key)))
    assert f"key {json.dumps(key)}" in refusal(lake, BY_NUMBER)


def test_keys_given_twice_are_listed_up_to_five(lake):
    write_file(lake, document(*(a_key(key) for key in "abcdefgg" * 2)))
    message = refusal(lake)
    assert '7 of its keys have several rows ("a"; "b"; "c"; "d"; "e")' in message


@pytest.mark.parametrize(("fold", "at"), [(FOLD, AS_OF_TEXT), (NO_TIMEOUT, "2026-03-02T00:00:00Z")])
def test_a_timeout_that_the_stream_cannot_have_is_named_with_its_key(lake, fold, at):
    write_file(lake, document(a_key("a"), a_key("b", at)))
    assert 'key "b": timeout_at' in refusal(lake, fold)


def test_the_rows_of_a_file_are_exact(lake):
    last_us = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    write_file(
        lake,
        document(
            a_key("a", "2026-03-01T01:00:00.000002+01:00", load=2, last=[]),
            a_key("b", "9999-12-31T23:59:59.999999Z", seen=2**63 - 1, note="ä"),
            {"key": "c", "state": HEALTH},
        ),
    )
    initial = read_initial_state(lake, STREAM, FOLD)
    assert initial.as_of_us == AS_OF_US
    assert collected(initial) == [
        ("a", HEALTH | {"load": 2.0, "last": []}, AS_OF_US + 1),
        ("b", HEALTH | {"seen": 2**63 - 1, "note": "ä"}, last_us),
        ("c", HEALTH, None),
    ]


def test_a_file_without_keys_only_says_since_when_events_count(lake):
    write_file(lake, document(as_of="2026-03-01T00:00Z"))
    initial = read_initial_state(lake, STREAM, FIVE_MINUTES)
    assert (EPOCH + initial.as_of_us * MICROSECOND).isoformat() == "2026-03-01T00:00:00+00:00"
    assert collected(initial) == []
