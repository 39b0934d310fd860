"""That much of what landed was refused is told, and by which reasons."""

from dataclasses import replace
from typing import Any

import pytest

from include.ingest.ingest import ingest
from include.ingest.ingest_log import Ingestion
from include.lake.ops import read_ops
from include.lake.paths import Lake
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS, quarantine_of
from tests.landed_files import Landing, signal

WELL = [signal(number) for number in range(8)]


def found_in(lake: Lake) -> list[dict[str, Any]]:
    return read_ops(lake, "findings", {"finding": "rows_quarantined"}).to_pylist()


def test_who_refuses_much_is_told_why_and_where(lake: Lake, landed: Landing):
    landed.add("b.jsonl", [*WELL[:4], "{", "{}"])
    landed.add("a.jsonl", [*WELL[4:], "["])
    ingest(lake, SIGNALS)
    (told,) = found_in(lake)
    assert (told["severity"], told["count"], told["limit"]) == ("warning", 3, 0.01)
    assert told["figure"] == len(quarantine_of(lake)) / 11


@pytest.mark.parametrize(("share", "findings"), [(0.2, 0), (0.19, 1), (0, 1), (1, 0)])
def test_it_is_told_above_the_share_that_the_source_says(
    lake: Lake, landed: Landing, share: float, findings: int
):
    landed.add("a.jsonl", [*WELL, "{", "["])
    ingest(lake, replace(SIGNALS, max_quarantined=share))
    assert len(found_in(lake)) == findings


def test_a_file_that_was_refused_as_a_whole_is_always_told_of(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(number) for number in range(100)])
    landed.add("b.parquet", "no Parquet")
    ingest(lake, replace(SIGNALS, max_quarantined=1))
    (told,) = found_in(lake)
    assert told["count"] == 1


def test_who_dies_before_the_rows_are_taken_has_told_of_them(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", ["{", *WELL])
    with monkeypatch.context() as patch:
        patch.setattr(Ingestion, "take", die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)
    assert quarantine_of(lake) == []
    assert [told["count"] for told in found_in(lake)] == [1]
