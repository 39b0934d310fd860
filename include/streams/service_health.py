"""Services that fell silent, and those that came back: one row for each change.

A service is stale after more than `stale_after` without a log line, and ok again with its
next one. With `time="event"` that goes by the lines' own times; with `time="processing"`
by when they were ingested, for services whose clocks cannot be trusted.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from include.fold.definition import KeyedFold, flat_map_groups_with_state
from include.fold.group_state import GroupState, span_us, timeout_in
from include.settings import Stream


class LogLine(NamedTuple):
    service: str


class Health(NamedTuple):
    stale: bool


class HealthChange(NamedTuple):
    service: str
    status: str


def define(*, stale_after: timedelta, time: str) -> KeyedFold:
    """The fold for one entry's settings."""
    silence_us = span_us("stale_after", stale_after)
    by_event_time = time == "event"

    def report_changes(
        service: str, lines: Iterator[LogLine], health: GroupState[Health]
    ) -> Iterator[HealthChange]:
        """`ok` when a stale service sends a line, `stale` when none came in time."""
        was_stale = health.exists and health.get.stale
        if health.hasTimedOut:
            health.update(Health(stale=True))
            if not was_stale:
                yield HealthChange(service, "stale")
            return
        health.update(Health(stale=False))
        # A line exactly at the timeout comes first: that is not more than `stale_after`.
        if by_event_time:
            health.setTimeoutTimestamp(timestampUs=health.clock_us + silence_us)
        else:
            health.setTimeoutDuration(durationUs=silence_us)
        if was_stale:
            yield HealthChange(service, "ok")

    return flat_map_groups_with_state(
        report_changes,
        key="service",
        event=LogLine,
        state=Health,
        output=HealthChange,
        output_mode="append",
        timeout=timeout_in(time),
        initial_timeout=stale_after,
    )


STREAM = Stream(
    source="service_logs",
    schedule="*/15 * * * *",
    watermark_delay=timedelta(minutes=5),
    fold=define,
    # With "processing" for the time, watermark_delay is 0: nothing is late there.
    settings={"stale_after": timedelta(minutes=5), "time": "event"},
    comments={
        "service": "The service whose health changed",
        "status": "stale: silent for too long; ok: heard of again",
    },
)
