"""The text of a stream's settings: each process must write the same."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from include.registry import source_named, stream_named
from include.settings import Stream
from include.stream_definition import check_stream, load_definition, pinned_settings, settings_text
from tests.refused import refused

WORDS = ("buy", "cart", "click", "leave", "order", "refund", "search", "view")


class Color(Enum):
    RED, BOTH = "red", frozenset({"red", "blue"})


@dataclass(frozen=True)
class Rule:
    name: str
    kinds: frozenset[str] = frozenset()


PINNED = (
    *(timedelta(minutes=5), "a", None, 1, 1.0, True, Decimal("1.50"), Color.RED, Color.BOTH),
    *(date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), ZoneInfo("Europe/Berlin")),
    *({"a": timedelta(1), "b": [1, 2.5]}, {"b": 1, "a": 2}, {"a": 2, "b": 1}, {"2": 1}),
    *(re.compile("a+"), re.compile("x" * 300), re.compile("x" * 301), Rule, Rule("one")),
    *(Rule("two", frozenset(WORDS)), [Rule("two", frozenset("a"))], (1, "a"), set(), set("a")),
    *(set(WORDS), frozenset({*WORDS, "z"}), {(word, 1) for word in WORDS}, {1, 2}, [1, 2]),
    *({date(2026, 1, day) for day in range(1, 9)}, {frozenset(WORDS), frozenset("a")}),
)


def written() -> list[str]:
    return [settings_text("s", {"kinds": value, "gap": 1}) for value in PINNED]


def test_each_process_writes_the_same_and_each_value_otherwise():
    source = "from tests.test_settings_text import written; print(*written(), sep='\\n')"
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", source],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert run.stdout.splitlines() == written()
    assert len(set(written())) == len(PINNED)


@pytest.mark.parametrize(
    "value",
    [lambda key: key, object(), [{"of": object()}], {object()}, Rule([].append), np.arange(2000)],
)
def test_what_each_process_would_write_otherwise_is_refused(value):
    with refused("wrong_setting", subject="kinds"):
        settings_text("s", {"gap": 1, "kinds": value})


def test_a_setting_that_cannot_be_pinned_is_refused_with_its_file():
    stream = stream_named("user_counts")
    wrong = replace(stream, fold=lambda score: stream.fold, settings={"score": lambda total: total})
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
