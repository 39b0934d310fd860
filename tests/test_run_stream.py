"""What a stream's entry and file must have, before any row is read."""

import importlib
import sys
from dataclasses import replace
from types import ModuleType
from typing import NamedTuple

import pytest

from include.streams import STREAMS, SettingsError, stream_named
from spark_jobs.run_stream import check_required, pinned_settings, stream_module
from spark_jobs.streams import user_counts


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_every_entry_has_its_file(stream):
    module = stream_module(stream.name)
    check_required(module.FOLD, stream)
    assert pinned_settings(stream, module.FOLD)["watermark_delay_ms"] == 600_000


def test_an_entry_without_a_file_is_named():
    with pytest.raises(SettingsError, match=r"no spark_jobs/streams/spending\.py"):
        stream_module("spending")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must define FOLD"),
        ({"FOLD": user_counts.FOLD}, "must define COMMENTS"),
        ({"FOLD": user_counts.FOLD, "COMMENTS": {"user_id": "who"}}, "nothing of total_count"),
    ],
)
def test_a_file_that_lacks_something_is_told_what(monkeypatch, content, message):
    module = ModuleType("spark_jobs.streams.spending")
    module.__spec__ = importlib.util.spec_from_loader(module.__name__, loader=None)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(SettingsError, match=message):
        stream_module("spending")


class ByLevel(NamedTuple):
    level: str
    event_time_us: int


class LevelCount(NamedTuple):
    level: str
    total_count: int


def test_a_field_that_may_be_missing_must_say_so():
    stream = replace(stream_named("user_counts"), source="service_logs")
    by_level = replace(user_counts.FOLD, event=ByLevel, key="level", output=LevelCount)
    with pytest.raises(SettingsError, match="level is never None, but source service_logs"):
        check_required(by_level, stream)
