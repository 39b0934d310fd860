"""The command that plans to set a source watermark back."""

from datetime import timedelta

from include.cli.__main__ import main
from include.ingest.amendments import amendments_of
from include.ingest.ingest import ingest
from include.lake.paths import Lake
from tests.landed_files import START, Landing, signal
from tests.watermarks import NO_HEARTBEAT


def test_the_command_shows_the_plan_and_changes_nothing(lake: Lake, capsys):
    for minute in (40, 50):
        Landing(lake).add(f"{minute}.jsonl", [signal(60 * minute)])
        ingest(lake, NO_HEARTBEAT)
    arguments = ["set-watermark", "signals", "--lake", lake.root]
    to = (START + timedelta(minutes=40)).isoformat()
    assert main([*arguments, "--to", to]) == 0
    assert "2026-03-01T00:40:00.000+00:00" in capsys.readouterr().out
    assert main(arguments) == 2
    assert amendments_of(lake, "signals").open is None
