"""An ingestion of several batches tells of what each of them refused, on the page and in the alert."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from include.ingest.ingest import ingest
from include.job import recorded_run
from include.observe.alerts import Alert, look_at
from include.observe.stream_line import Recorded
from include.registry import source_named, stream_named
from include.streams import sources
from tests.dags import land

STREAM = stream_named("user_counts")


def test_the_page_and_the_alert_have_the_rows_of_both_batches(lake, monkeypatch):
    source = replace(source_named("user_events"), commit_bytes=1)
    others = [each for each in sources.SOURCES if each.name != source.name]
    monkeypatch.setattr(sources, "SOURCES", (source, *others))
    land(lake, *["garbage"] * 9, file="a.jsonl")
    land(lake, *["garbage"] * 2, file="b.jsonl")
    os.utime(Path(lake.landing(source.name), "a.jsonl"), (1, 1))
    with recorded_run(lake, "ingest_source", source.name, "d1") as record:
        ingest(lake, source, record)
    assert (record["batches"], record["rows_quarantined"]) == (2, 11)
    recorded = Recorded(lake, datetime.now(UTC) - timedelta(days=30), STREAM)
    found = recorded.open_findings(STREAM)
    assert sorted(r["count"] for r in found if r["finding"] == "rows_quarantined") == [2, 9]
    looks = look_at(lake, STREAM, datetime.now(UTC), [])
    text = Alert(STREAM.name, [row for look in looks for row in look.open]).text
    assert all(f"{rows} went to quarantine" in text for rows in (9, 2))
