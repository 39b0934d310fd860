"""By which text a stream's settings are pinned: each process must write the same."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from include.fold.definition import KeyedFold
from include.registry import source_named, stream_named
from include.settings import Stream
from include.settings_text import settings_text
from include.stream_definition import check_stream, load_definition, pinned_settings
from tests.refused import refused

WORDS = ("buy", "cart", "click", "leave", "order", "refund", "search", "view")


class Color(Enum):
    RED, BOTH = "red", frozenset({"red", "blue"})


class Level(IntEnum):
    LOW = 1


@dataclass(frozen=True)
class Rule:
    name: str
    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Hiding:
    name: str = field(repr=False)


def as_settings_text(value: Any) -> str:
    return json.loads(settings_text("s", {"kinds": value}))["kinds"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (frozenset(WORDS), "frozenset({'buy', 'cart', 'click', 'leave', 'order', 'refund', "),
        (set(WORDS), "{'buy', 'cart', 'click', 'leave', 'order', 'refund', "),
        ({(word, 1) for word in WORDS}, "{('buy', 1), ('cart', 1), ('click', 1), "),
        ({date(2026, 1, day) for day in range(1, 9)}, "{datetime.date(2026, 1, 1), "),
        ({frozenset(WORDS), frozenset("a")}, "{frozenset({'a'}), frozenset({'buy', 'cart', "),
    ],
)
def test_a_set_is_written_in_order(value, text):
    assert as_settings_text(value).startswith(text)
    assert as_settings_text([value])[0].startswith(text)


@pytest.mark.parametrize(
    "value",
    [
        timedelta(minutes=5),
        "a",
        None,
        {"a": timedelta(1), "b": [1, 2.5, True]},
        (1, "a"),
        date(2026, 1, 2),
        datetime(2026, 1, 2, tzinfo=UTC),
        Decimal("1.50"),
        Color.RED,
        Level.LOW,
        ZoneInfo("Europe/Berlin"),
        re.compile("a+"),
        Rule("one"),
        [Rule("two", frozenset({"a"}))],
        Rule,
        set(),
        frozenset(),
        {"a"},
        frozenset({("a", "b")}),
        {8, 1, 0},
        frozenset({8.5, 1}),
        {(8, 1), (0, 1), (3, 3)},
        {timedelta(8), timedelta(1)},
        {"at 0x12"},
        Rule("crashed at 0x12"),
    ],
    ids=repr,
)
def test_what_each_process_writes_alike_is_written_as_python_does(value):
    plain = str(value) if isinstance(value, timedelta) else value
    as_python = json.dumps({"gap": 1, "kinds": plain}, sort_keys=True, default=repr)
    assert settings_text("s", {"kinds": value, "gap": 1}) == as_python


def test_a_dict_is_written_with_its_order_and_the_types_of_its_keys():
    assert as_settings_text({"b": 1, "a": {2: True}}) == [["'b'", 1], ["'a'", [["2", True]]]]


@pytest.mark.parametrize(
    "value",
    [
        lambda key: key,
        object(),
        [{"of": object()}],
        {object()},
        Rule("three", frozenset({"a", "b"})),
        {("a", frozenset({"a", "b"}))},
        Color.BOTH,
        {("a", 1): 2},
    ],
)
def test_what_each_process_would_write_otherwise_is_refused(value):
    with refused("wrong_setting", subject="kinds"):
        settings_text("s", {"gap": 1, "kinds": value})


@pytest.mark.parametrize(
    "value",
    [
        re.compile("x" * 199),
        [Rule("one", frozenset({re.compile("x" * 199)}))],
        {(re.compile("x" * 199),)},
        np.arange(2000),
        Hiding("a"),
    ],
)
def test_what_python_may_not_write_all_of_is_refused(value):
    with refused("wrong_setting", subject="kinds"):
        settings_text("s", {"kinds": value})


def test_a_pattern_that_python_writes_whole_is_pinned():
    assert as_settings_text(re.compile("x" * 198)) == f"re.compile('{'x' * 198}')"


def taking_a_function(stream: Stream) -> Stream:
    def define(score: Callable[[int], int]) -> KeyedFold:
        return stream.fold

    return replace(stream, fold=define, settings={"score": abs})


def test_a_setting_that_cannot_be_pinned_is_refused_with_its_file():
    stream = taking_a_function(stream_named("user_counts"))
    check_stream(stream, source_named(stream.source))
    wrong = replace(stream, settings={"score": lambda total: total})
    with refused("wrong_setting", subject="score"):
        check_stream(wrong, source_named(stream.source))


def with_an_end(stream: Stream, setting: object, ttl: timedelta) -> Stream:
    fold = replace(stream.fold, ttl=ttl)
    return replace(stream, fold=lambda ttl: fold, settings={"ttl": setting})


def test_a_setting_that_is_called_like_what_the_fold_pins_is_refused_unless_it_is_the_same():
    stream, days = stream_named("user_counts"), timedelta(days=90)
    handed_on = with_an_end(stream, days, days)
    check_stream(handed_on, source_named(stream.source))
    pinned = pinned_settings(handed_on, load_definition(handed_on).fold)
    assert pinned["settings"] == '{"ttl": "90 days, 0:00:00"}'
    with refused("wrong_setting", subject="ttl"):
        check_stream(with_an_end(stream, 7, days), source_named(stream.source))
