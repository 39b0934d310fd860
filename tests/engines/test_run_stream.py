"""What a stream's entry and file must have, before any row is read."""

import importlib
import sys
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import NamedTuple

import pytest

from include.stream_definition import load_definition, pinned_settings
from include.streams import STREAMS, SettingsError, stream_named
from spark_jobs.streams import user_counts

SPENDING = replace(stream_named("user_counts"), name="spending")


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_every_entry_has_its_file(stream):
    definition = load_definition(stream)
    delay_ms = pinned_settings(stream, definition.fold)["watermark_delay_ms"]
    assert delay_ms == stream.watermark_delay / timedelta(milliseconds=1)
    assert set(definition.comments) >= {column.name for column in definition.fold.output_columns}


def test_an_entry_without_a_file_is_named():
    with pytest.raises(SettingsError, match=r"no spark_jobs/streams/spending\.py"):
        load_definition(SPENDING)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "must define FOLD"),
        ({"FOLD": user_counts.FOLD}, "must define COMMENTS"),
        ({"FOLD": user_counts.FOLD, "COMMENTS": {"user_id": "who"}}, "nothing of total_count"),
    ],
)
def test_a_file_that_lacks_something_is_told_what(monkeypatch, content, message):
    define_stream(monkeypatch, content)
    with pytest.raises(SettingsError, match=message):
        load_definition(SPENDING)


def define_stream(monkeypatch, content) -> None:
    """As if `content` stood in spark_jobs/streams/spending.py."""
    module = ModuleType("spark_jobs.streams.spending")
    module.__spec__ = importlib.util.spec_from_loader(module.__name__, loader=None)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, module.__name__, module)


ALERTS, HEALTH = stream_named("threshold_alerts"), stream_named("service_health")


@pytest.mark.parametrize(
    ("stream", "change", "message"),
    [
        (ALERTS, {"limit": -1}, "limit must be a whole number, 0 or more, not -1"),
        (ALERTS, {"limit": True}, "limit must be a whole number"),
        (ALERTS, {"span": timedelta(0)}, "span must be a timedelta above 0"),
        (ALERTS, {"event_type": ""}, "event_type must be the name of one"),
        (ALERTS, {"spam": 1}, "settings are event_type, limit, span, but .* has .*spam"),
        (HEALTH, {"time": "wall"}, "time must be 'event' or 'processing', not 'wall'"),
        (HEALTH, {"stale_after": 300}, "stale_after must be a timedelta above 0, not 300"),
        (HEALTH, {"time": "processing"}, "processing time, so watermark_delay must be 0"),
        (stream_named("user_sessions"), {"gap": -timedelta(1)}, "gap must be a timedelta above 0"),
        (stream_named("user_counts"), {"gap": 1}, "takes no settings, but its entry has gap"),
    ],
)
def test_a_wrong_setting_is_named_with_its_stream(stream, change, message):
    wrong = replace(stream, settings={**stream.settings, **change})
    with pytest.raises(SettingsError, match=f"stream {stream.name}: .*{message}"):
        load_definition(wrong)


def test_a_missing_setting_is_named():
    with pytest.raises(SettingsError, match=r"its settings are gap, but its entry .* has none"):
        load_definition(replace(stream_named("user_sessions"), settings={}))


def test_settings_are_pinned_as_they_are_written():
    stream = stream_named("user_sessions")
    pinned = pinned_settings(stream, load_definition(stream).fold)
    longer = replace(stream, settings={"gap": stream.settings["gap"] + timedelta(microseconds=1)})
    assert pinned["timeout"] == "EventTimeTimeout"
    assert pinned_settings(longer, load_definition(longer).fold)["settings"] != pinned["settings"]


def test_without_timeout_and_settings_nothing_is_pinned_that_an_earlier_release_did_not_pin():
    stream = stream_named("user_counts")
    pinned = pinned_settings(stream, load_definition(stream).fold)
    assert (pinned["timeout"], pinned["settings"]) == (None, None)
    assert "timeout_at_us" not in pinned["state_schema"]


class ByLevel(NamedTuple):
    level: str
    event_time_us: int


class LevelCount(NamedTuple):
    level: str
    total_count: int


def test_a_field_that_may_be_missing_must_say_so(monkeypatch):
    by_level = replace(user_counts.FOLD, event=ByLevel, key="level", output=LevelCount)
    comments = {"level": "which", "total_count": "how many"}
    define_stream(monkeypatch, {"FOLD": by_level, "COMMENTS": comments})
    with pytest.raises(SettingsError, match="level is never None, but source service_logs"):
        load_definition(replace(SPENDING, source="service_logs"))
