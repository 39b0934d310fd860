"""A landed file that its producer has deleted stops its source until it is given up."""

from pathlib import Path

import pytest

from include.cli import __main__ as cli
from include.lake.ops import read_ops
from include.lake.paths import Lake
from include.landing import ingest as ingestion
from include.landing import skip_lost as skip_file
from include.landing.ingest import RunCounts, ingest
from include.landing.ingest_position import files_waiting
from include.landing.landed_file import FileGoneError
from include.landing.parsed_batch import ParsedHere
from include.landing.skip_lost import plan_skip_file
from tests.deaths import KilledError, die
from tests.ingested import SIGNALS, other_findings, quarantine_of, values_of
from tests.landed_files import Landing, signal
from tests.refused import refused

pytestmark = pytest.mark.slow

BAD = "no event"
# Before which write the first run dies: what the tables have by then.
DIED = {
    "nothing": (ParsedHere, "append_accepted"),
    "bronze": (ParsedHere, "append_refused"),
    "all": (ingestion, "finish"),
}


def skip(lake: Lake, name: str, *more: str) -> int:
    return cli.main(["skip-file", "signals", name, "--lake", lake.root, *more])


def begin(lake: Lake, landed: Landing, died: str, lines: list[str]) -> Path:
    """A batch of three files that was begun, and of which `gone.jsonl` is gone."""
    landed.add("a.jsonl", [signal(0, value=1), BAD])
    gone = landed.add("gone.jsonl", lines)
    landed.add("b.jsonl", [signal(1, value=2), BAD])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*DIED[died], die)
        with pytest.raises(KilledError):
            ingest(lake, SIGNALS)
    gone.unlink()
    return gone


@pytest.mark.parametrize(
    ("died", "lines", "of_gone", "rejected"),
    [
        ("nothing", [signal(2, value=3), BAD], [], {0}),
        ("bronze", [signal(2, value=3), BAD], [("gone.jsonl", 3)], set()),
        ("bronze", [BAD], [], {0}),
        ("all", [signal(2, value=3), BAD], [("gone.jsonl", 3)], {2}),
        ("all", [BAD, BAD], [], {1, 2}),
        ("all", [], [], set()),
    ],
)
def test_the_batch_goes_on_without_it_whatever_was_written(
    lake: Lake,
    landed: Landing,
    died: str,
    lines: list[str],
    of_gone: list[tuple[str, int]],
    rejected: set[int],
):
    begin(lake, landed, died, lines)
    with refused(
        "lost_input",
        subject="gone.jsonl",
        command="./stateful skip-file signals gone.jsonl --apply",
    ):
        ingest(lake, SIGNALS)
    assert skip(lake, "gone.jsonl") == 0
    with pytest.raises(FileGoneError):
        ingest(lake, SIGNALS)  # it was a plan alone
    assert skip(lake, "gone.jsonl", "--apply") == 0
    assert skip(lake, "gone.jsonl", "--apply") == 0

    ingest(lake, SIGNALS)

    assert values_of(lake) == sorted([("a.jsonl", 1), ("b.jsonl", 2), *of_gone])
    rows = [(row["source_file"], row["row_number"]) for row in quarantine_of(lake)]
    assert rows == sorted(
        [("a.jsonl", 2), ("b.jsonl", 2), *(("gone.jsonl", number) for number in rejected)]
    )
    assert files_waiting(lake, "signals") == 0
    assert ingest(lake, SIGNALS) == RunCounts()
    (found,) = other_findings(lake)
    assert (found["finding"], found["count"]) == ("file_given_up", 1)


def test_what_is_given_up_is_given_up_when_the_run_after_dies_too(lake: Lake, landed: Landing):
    begin(lake, landed, "nothing", [signal(2)])
    skip(lake, "gone.jsonl", "--apply")
    for place, name in DIED.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, die)
            with pytest.raises(KilledError):
                ingest(lake, SIGNALS)
    ingest(lake, SIGNALS)
    assert [name for name, _ in values_of(lake)] == ["a.jsonl", "b.jsonl"]
    assert len(quarantine_of(lake)) == 3


def test_it_hides_no_row_of_another_file_that_was_changed_since(lake: Lake, landed: Landing):
    """Its own row, which bronze has, is not to stand for the one that a.jsonl has more by now."""
    begin(lake, landed, "bronze", [signal(2, value=3)])
    skip(lake, "gone.jsonl", "--apply")
    landed.add("a.jsonl", [signal(0, value=1), signal(3, value=4)])
    with refused("rows_do_not_add_up", subject="signals"):
        ingest(lake, SIGNALS)
    landed.add("a.jsonl", [signal(0, value=1), BAD])
    ingest(lake, SIGNALS)
    assert values_of(lake) == [("a.jsonl", 1), ("b.jsonl", 2), ("gone.jsonl", 3)]


def test_it_is_said_though_the_command_was_killed(
    lake: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    begin(lake, landed, "bronze", [signal(2)])
    monkeypatch.setattr(skip_file, "seal_tables", die)
    with pytest.raises(KilledError):
        skip(lake, "gone.jsonl", "--apply")
    monkeypatch.undo()
    assert skip(lake, "gone.jsonl", "--apply") == 0  # it is given up already
    assert read_ops(lake, "findings")["finding"].to_pylist() == ["file_given_up"]


def test_a_file_that_stops_nothing_is_not_given_up(lake: Lake, landed: Landing):
    landed.add("a.jsonl", [signal(0)])
    with refused("wrong_argument", subject="a.jsonl"):
        plan_skip_file(lake, SIGNALS, "a.jsonl")
    ingest(lake, SIGNALS)
    assert skip(lake, "a.jsonl") == 2
