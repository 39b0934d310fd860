"""What a set-aside says of a batch that was begun, and of which bronze has the rows already."""

from datetime import UTC, datetime

import pytest

from include.care.set_aside import plan_set_aside
from include.lake.paths import Lake
from include.landing.ingest import ingest
from include.landing.parsed_batch import ParsedHere
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS, values_of
from tests.landed_files import Landing, signal


def test_its_files_that_are_gone_are_counted_among_those_that_do_not_come_again(lake: Lake):
    path = Landing(lake).add("a.jsonl", [signal(0), "{"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParsedHere, "append_refused", die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)
    assert values_of(lake) == [("a.jsonl", 10)]
    path.unlink()
    told = plan_set_aside(lake, ["bronze/signals"], datetime(2026, 3, 1, tzinfo=UTC)).text()
    assert "1 file of those taken are not in landing any more: DATA IS LOST" in told
