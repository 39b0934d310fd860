"""The command that plans the repair of a wrong clock."""

from datetime import timedelta

import pyarrow as pa

from include.cli.__main__ import main
from include.fold.admission import micros_of
from include.ingest.amendments import amendments_of
from include.ingest.ingest_log import Ingestion
from include.ingest.watermark import advance_watermark, bronze_rows, read_watermark
from include.lake.paths import Lake
from tests.landed_files import START
from tests.watermarks import NO_HEARTBEAT

# The signals, without one that comes 30 days ahead.
AHEAD = 30 * 24 * 60


def test_the_command_shows_the_plan_and_changes_nothing(lake: Lake, capsys):
    bronze_of_signals(lake, 40, AHEAD, 50)
    arguments = ["set-watermark", "signals", "--lake", lake.root]
    to = (START + timedelta(minutes=40)).isoformat()
    assert main([*arguments, "--to", to]) == 0
    assert "2026-03-01T00:40:00.000+00:00" in capsys.readouterr().out
    assert main(arguments) == 2
    assert amendments_of(lake, "signals").open is None


def bronze_of_signals(lake: Lake, *minutes: int) -> None:
    """A commit for each."""
    ingestion = Ingestion(lake, NO_HEARTBEAT)
    for number, minute in enumerate(minutes):
        us = micros_of(START + timedelta(minutes=minute))
        columns = {"device_id": pa.array([1], pa.int64()), "value": pa.array([1], pa.int64())}
        events = pa.table({**columns, "event_time_us": [us], "source_file": ["a.jsonl"]})
        before = read_watermark(ingestion)
        now_us = micros_of(START + timedelta(days=60 + number))
        after = advance_watermark(before, us, now_us)
        ingestion.commit_rows(before, after, bronze_rows(NO_HEARTBEAT, events, before, after))
