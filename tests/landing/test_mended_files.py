"""A refused file that is mended between the death of a run and the repeat of its batch."""

import gzip

import pytest

from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import read_position
from include.landing.parse_files import WHOLE_FILE
from include.landing.parsed_batch import ParsedHere
from include.landing.skip_lost import apply_skip_file, plan_skip_file
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS, bronze_of, quarantine_of
from tests.landed_files import Landing, signal
from tests.refused import refused

pytestmark = pytest.mark.slow

BROKEN, MENDED = b"\x1f\x8b no gzip", gzip.compress(f"{signal(1)}\n{signal(2)}\n".encode())
DEATHS = {"append_accepted": ParsedHere, "append_refused": ParsedHere, "finish": ingestion}


def die_before(lake: Lake, patch: pytest.MonkeyPatch, write: str) -> None:
    with patch.context() as dying:
        dying.setattr(DEATHS[write], write, die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)


@pytest.mark.parametrize("dies_before", ["append_refused", "finish"])
@pytest.mark.parametrize("beside", [[], [signal(0)], [signal(0), "{"], ["{"]])
def test_it_is_left_to_reingest_once_a_table_has_something_of_its_batch(
    lake: Lake,
    landed: Landing,
    monkeypatch: pytest.MonkeyPatch,
    beside: list[str],
    dies_before: str,
):
    if beside:
        landed.add("a.jsonl", beside)
    landed.add("b.jsonl.gz", BROKEN)
    die_before(lake, monkeypatch, dies_before)
    landed.add("b.jsonl.gz", MENDED)
    is_begun = dies_before == "finish" or signal(0) in beside
    files = ["a.jsonl"] * beside.count(signal(0)) + ["b.jsonl.gz"] * (0 if is_begun else 2)
    ingest(lake, SIGNALS)
    assert sorted(row["source_file"] for row in bronze_of(lake)) == files
    whole = [row["source_file"] for row in quarantine_of(lake) if row["row_number"] == WHOLE_FILE]
    assert whole == (["b.jsonl.gz"] if is_begun else [])
    assert len(quarantine_of(lake)) == len(whole) + beside.count("{")
    assert ingest(lake, SIGNALS) == RunCounts()


def test_a_row_that_is_mended_stops_the_repeat_until_it_is_put_back(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0), "{"])
    die_before(lake, monkeypatch, "append_refused")
    landed.add("a.jsonl", [signal(0), signal(1)])
    for _ in range(2):
        with refused("rows_do_not_add_up", subject="signals"):
            ingest(lake, SIGNALS)
        assert quarantine_of(lake) == []
    landed.add("a.jsonl", [signal(0), "{"])
    assert ingest(lake, SIGNALS) == RunCounts(1, 1, 2, 1, 1)
    position = read_position(lake, "signals")
    assert position is not None
    assert position.open is None


def test_what_cannot_be_put_back_is_given_up_as_the_error_says(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    landed.add("a.jsonl", [signal(0), "{"])
    die_before(lake, monkeypatch, "append_refused")
    landed.add("a.jsonl", [signal(0), signal(1)])
    with refused("rows_do_not_add_up", command="./stateful skip-file signals a.jsonl"):
        ingest(lake, SIGNALS)
    plan = plan_skip_file(lake, SIGNALS, "a.jsonl")
    assert plan is not None
    apply_skip_file(lake, SIGNALS, plan)
    ingest(lake, SIGNALS)  # it does mend it
    assert [row["source_file"] for row in bronze_of(lake)] == ["a.jsonl"]
