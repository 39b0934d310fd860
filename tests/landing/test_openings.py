"""How often a run of ingestion opens Delta tables: most of its time, and of what a store bills."""

from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable

from include.job import recorded_run
from include.lake.paths import Lake
from include.landing.ingest import ingest
from tests.ingested import SIGNALS
from tests.landed_files import Landing, signal

pytestmark = pytest.mark.slow

MOST = 37


def test_a_run_of_one_file_opens_few_tables_and_no_more_as_the_lake_grows(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    opened = 0
    made = DeltaTable.__init__

    def counted(self: DeltaTable, *args: Any, **options: Any) -> None:
        nonlocal opened
        opened += 1
        made(self, *args, **options)

    monkeypatch.setattr(DeltaTable, "__init__", counted)
    runs = []
    for number in range(12):
        landed.add(f"{number}.jsonl", [signal(number), "{"])
        before = opened
        with recorded_run(lake, "ingest_source", SIGNALS.name, None) as record:
            ingest(lake, replace(SIGNALS, max_quarantined=1), record)
        runs.append(opened - before)
    assert max(runs[1:]) <= MOST
