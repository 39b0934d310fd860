"""Checks of a stream's entry and file before any row is read, and the settings that bind a generation."""

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.fold.definition import Deduplicate, state_rows_ddl
from include.registry import all_streams, source_named, stream_named
from include.stream_definition import check_stream, load_definition, pinned_settings
from include.streams import device_signals, sources, user_counts
from spark_jobs.engines.packed_files import check_bronze
from tests.declared import with_fold
from tests.refused import refused


@pytest.mark.parametrize("stream", all_streams(), ids=lambda stream: stream.name)
def test_every_stream_is_whole(stream):
    definition = load_definition(stream)
    delay_ms = pinned_settings(stream, definition.fold)["watermark_delay_ms"]
    assert delay_ms == stream.watermark_delay / timedelta(milliseconds=1)
    assert set(definition.comments) >= {column.name for column in definition.fold.output_columns}


def test_columns_without_a_comment_are_named():
    lacking = replace(stream_named("user_counts"), comments={"user_id": "who"})
    with refused("wrong_setting", subject="comments"):
        load_definition(lacking)


ALERTS, HEALTH = stream_named("threshold_alerts"), stream_named("service_health")


@pytest.mark.parametrize(
    ("stream", "change", "code", "subject"),
    [
        (ALERTS, {"limit": -1}, "wrong_definition", "limit"),
        (ALERTS, {"limit": True}, "wrong_definition", "limit"),
        (ALERTS, {"span": timedelta(0)}, "wrong_definition", "span"),
        (ALERTS, {"event_type": ""}, "wrong_definition", "event_type"),
        (ALERTS, {"spam": 1}, "wrong_setting", "settings"),
        (HEALTH, {"time": "wall"}, "wrong_definition", "time"),
        (HEALTH, {"stale_after": 300}, "wrong_definition", "stale_after"),
        (HEALTH, {"time": "processing"}, "wrong_setting", "watermark_delay"),
        (stream_named("user_sessions"), {"gap": -timedelta(1)}, "wrong_definition", "gap"),
        (stream_named("user_counts"), {"gap": 1}, "wrong_setting", "settings"),
    ],
)
def test_a_wrong_setting_is_named(stream, change, code, subject):
    wrong = replace(stream, settings={**stream.settings, **change})
    with refused(code, subject=subject):
        load_definition(wrong)


def test_a_missing_setting_is_named():
    with refused("wrong_setting", subject="settings"):
        load_definition(replace(stream_named("user_sessions"), settings={}))


def test_a_source_declares_duplicates_for_its_streams_and_a_stream_may_say_otherwise(monkeypatch):
    known = Deduplicate(by="event_type", within=timedelta(microseconds=100))
    given = tuple(
        replace(source, deduplicate=known) if source.name == "user_events" else source
        for source in sources.SOURCES
    )
    monkeypatch.setattr(sources, "SOURCES", given)
    assert stream_named("threshold_alerts").deduplicate == known
    with refused("wrong_definition", subject="deduplicate"):
        stream_named("user_counts")
    other = replace(user_counts.STREAM, deduplicate=None)
    monkeypatch.setattr(user_counts, "STREAM", other)
    assert load_definition(stream_named("user_counts")).fold.deduplicate is None


SEEN = Deduplicate(by="event_time_us", within=timedelta(microseconds=100))
ONE_HOUR = {"gap": timedelta(hours=1)}


@pytest.mark.parametrize(
    ("stream", "changes", "settings", "added"),
    [
        (stream_named("user_counts"), {}, None, ""),
        (stream_named("user_counts"), {"ttl": timedelta(days=90)}, {"ttl": "90 days, 0:00:00"}, ""),
        (
            stream_named("user_counts"),
            {"deduplicate": SEEN},
            {"deduplicate": "by event_time_us within 0:00:00.000100"},
            ", seen array<struct<by_event_time_us: bigint, at_us: bigint>>",
        ),
        (
            stream_named("user_counts"),
            {"timeout": "EventTimeTimeout", "timers": ("soon", "later")},
            None,
            ", timers struct<soon: bigint, later: bigint>",
        ),
        (replace(stream_named("user_sessions"), settings=ONE_HOUR), {}, {"gap": "1:00:00"}, ""),
    ],
)
def test_a_generation_is_bound_to_settings_and_to_what_is_stored(stream, changes, settings, added):
    fold = replace(load_definition(stream).fold, **changes)
    pinned = pinned_settings(stream, fold)
    assert pinned["timeout"] == (fold.timeout if fold.times_out else None)
    assert pinned["settings"] == (settings and json.dumps(settings))
    schema = replace(fold, deduplicate=None, timers=())
    assert pinned["state_schema"] == state_rows_ddl(schema) + added


class ByLevel(NamedTuple):
    level: str
    event_time_us: int


class LevelCount(NamedTuple):
    level: str
    total_count: int


def test_a_field_that_may_be_missing_must_say_so():
    by_level = replace(user_counts.FOLD, event=ByLevel, key="level", output=LevelCount)
    stream = with_fold(stream_named("service_health"), by_level)
    with refused("wrong_setting", subject="ByLevel.level"):
        check_stream(stream, source_named("service_logs"))


def test_a_field_has_the_type_of_its_source():
    signals = source_named("signals")
    fields = [replace(f, type="double") if f.name == "value" else f for f in signals.fields]
    with refused("wrong_setting", subject="Signal.value"):
        check_stream(stream_named("device_signals"), replace(signals, fields=tuple(fields)))


@pytest.mark.parametrize(
    ("schedule", "is_one"),
    [
        *[(wrong, False) for wrong in ("each hour", "R * * * *", "r(1-9) * * * *")],
        *[(right, True) for right in ("0 3 * MAR,APR FRI", "@hourly")],
    ],
)
def test_a_schedule_is_a_cron_expression_of_known_instants(schedule: str, is_one: bool):
    stream = replace(stream_named("user_counts"), schedule=schedule)
    with nullcontext() if is_one else refused("wrong_setting", subject="schedule"):
        check_stream(stream, source_named("user_events"))


def test_a_field_that_bronze_does_not_have_or_of_another_type_is_refused(lake):
    write_deltalake(lake.bronze("signals"), pa.table({"device_id": ["a"]}))
    for fold, subject in ((user_counts.FOLD, "user_id"), (device_signals.FOLD, "device_id")):
        with refused("wrong_definition", subject=subject):
            check_bronze(lake.bronze("signals"), fold)
