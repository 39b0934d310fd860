"""The generator: same bytes for the same options, and shares that the parser agrees with."""

import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from include.cli.__main__ import main
from include.ingest.formats import open_rows
from include.ingest.landed_values import Event, RefusedError, reader_of_events
from include.lake.errors import LakeError
from include.lake.paths import Lake
from include.registry import all_sources, source_named, streams_of
from include.sample.sample_data import (
    DISORDER_US,
    EPOCH,
    HOUR_US,
    MICROSECOND,
    Options,
    draw_arrivals,
    generate,
)
from include.settings import Source

SIGNALS = source_named("signals")
START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = (START - EPOCH) // MICROSECOND
LANDED = [source for source in all_sources() if source.parent is None]
SMALL = Options(start=START, events=400, keys=20, span_hours=6)


def files_of(lake: Lake, source: Source = SIGNALS) -> dict[str, bytes]:
    folder = Path(lake.landing(source.name))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def read_back(lake: Lake, source: Source) -> tuple[list[Event], int]:
    """The events in landing in the order of their files, and how many rows are refused."""
    events, refused = [], 0
    for name, content in files_of(lake, source).items():
        rows = open_rows(name, content, source)
        for item in rows.items():
            try:
                events.append(reader_of_events(source)(rows.values(item), START_US + 48 * HOUR_US))
            except RefusedError:
                refused += 1
    return events, refused


@pytest.mark.parametrize("source", LANDED, ids=lambda source: source.name)
def test_exactly_the_malformed_rows_are_refused(lake: Lake, source: Source):
    options = replace(SMALL, malformed_share=0.2, duplicate_share=0.1)
    summary = generate(lake, source, options)
    events, refused = read_back(lake, source)
    assert summary.rows == options.events + summary.duplicates == len(events) + refused
    assert refused == summary.malformed
    assert 0.1 < refused / summary.rows < 0.3
    assert 0.05 < summary.duplicates / options.events < 0.15
    assert summary.files == len(files_of(lake, source))


def test_rows_are_out_of_order_within_the_bound_and_late_ones_far_beyond():
    options = replace(SMALL, events=2000, late_share=0.1, duplicate_share=0)
    arrivals, _, late = draw_arrivals(SIGNALS, options)
    delays = [row.arrived_us - row.event_time_us for row in arrivals]
    beyond = [delay for delay in delays if delay > DISORDER_US]
    assert len(beyond) == late
    assert 0.05 < late / len(arrivals) < 0.15
    assert min(delays) >= 0
    assert min(beyond) > HOUR_US
    times = [row.event_time_us for row in arrivals]
    assert times != sorted(times)
    assert START_US <= min(times) <= max(times) < START_US + 6 * HOUR_US


def commits(lake: Lake, source: Source) -> list[list[int]]:
    """The event times of each commit that ingestion makes of what has landed, at least."""
    found: list[list[int]] = []
    room = 0
    for name, content in files_of(lake, source).items():
        if len(content) > room:
            found.append([])
            room = source.commit_bytes
        room -= len(content)
        rows = open_rows(name, content, source)
        for item in rows.items():
            with suppress(RefusedError):
                event = reader_of_events(source)(rows.values(item), START_US + 48 * HOUR_US)
                found[-1].append(event.event_time_us)
    return found


@pytest.mark.parametrize("source", LANDED, ids=lambda source: source.name)
def test_by_default_each_stream_has_late_rows_to_backfill_and_can_settle_the_day(lake, source):
    generate(lake, source, Options(start=START))
    found = commits(lake, source)
    newest = list(itertools.accumulate(map(max, found), max))
    for stream in streams_of(source.name):
        delay_us = stream.watermark_delay // MICROSECOND
        pairs = itertools.pairwise(zip(found, newest, strict=True))
        late = [at for (_, before), (times, _) in pairs for at in times if at <= before - delay_us]
        assert 0 < len(late) < sum(map(len, found)) / 200, stream.name
        assert newest[-1] - delay_us > START_US + 24 * HOUR_US


def test_landing_the_same_again_changes_nothing_and_other_content_is_refused(lake: Lake):
    generate(lake, SIGNALS, SMALL)
    before = files_of(lake)
    generate(lake, SIGNALS, SMALL)
    assert files_of(lake) == before
    with pytest.raises(LakeError):
        generate(lake, SIGNALS, replace(SMALL, keys=21))
    assert files_of(lake) == before


def test_the_command_makes_the_lake_and_all_sources(tmp_path: Path):
    root = tmp_path / "new" / "lake"
    assert main(["sample-data", "--lake", str(root), "--events", "10"]) == 0
    found = {path.name for path in (root / "landing").iterdir()}
    assert found == {source.name for source in LANDED}
