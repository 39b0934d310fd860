"""Whatever lands, and wherever runs die: each landed row is in bronze or in quarantine, once.

And the source watermark is what include/ingest/watermark.py says, commit after commit.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.ingest.ingest import ingest
from include.ingest.parse_files import Counts
from include.ingest.source_connector import waiting
from include.lake.paths import Lake
from tests.deaths import Dying, KilledError, MachineClock
from tests.examples import examples
from tests.ingested import one_file_a_commit, quarantine_of
from tests.landed_files import START, Landing, signal
from tests.watermarks import HOUR, SIGNALS, in_order

# (Alone in a file "[]" would be an array without rows.)
BAD_LINES = ("{", '"7"', signal(0, value="x"), '{"device_id": 1}')
# Of all events; no time of the machine is before it, as that would refuse them.
SPAN = 5 * HOUR

seconds = st.integers(0, SPAN.seconds * 1000).map(lambda millis: millis / 1000)
good_lines = st.builds(signal, seconds, st.integers(1, 2), st.integers(1, 2))
lines = st.lists(good_lines | st.sampled_from(BAD_LINES), max_size=4)
contents = lines | lines.map(lambda each: each * 2)  # duplicates are rows, too
times = st.integers(0, 20 * HOUR.seconds).map(
    lambda late: START + SPAN + late * timedelta(seconds=1)
)


class File(NamedTuple):
    lines: list[str]
    is_readable: bool


class Run(NamedTuple):
    """What lands before a run of ingestion, when it comes, and at which of its writes it dies."""

    files: list[File]
    time: datetime
    is_split: bool  # a commit for each file
    interval_end: datetime  # to which a heartbeat may move the watermark
    dies_at: int | None


files = st.builds(File, contents, st.sampled_from([True, True, False]))
runs = st.builds(
    Run, st.lists(files, max_size=3), times, st.booleans(), times, st.none() | st.integers(1, 13)
)


class World:
    """A lake, what has landed in it, and the time of its machine, which may go back."""

    def __init__(self, root: str, patch: pytest.MonkeyPatch) -> None:
        self.lake = Lake(root)
        self.landing = Landing(self.lake)
        self.machine = MachineClock(patch, START + SPAN)
        self.events: Counter[tuple[str, str]] = Counter()
        self.refused: set[tuple[str, int]] = set()
        self.files = 0

    def land(self, file: File) -> None:
        name = f"{self.files}.{'jsonl' if file.is_readable else 'txt'}"
        self.landing.add(name, file.lines)
        self.files += 1
        if not file.is_readable:
            self.refused.add((name, 0))
            return
        for number, line in enumerate(file.lines, start=1):
            if line in BAD_LINES:
                self.refused.add((name, number))
            else:
                self.events[name, line] += 1

    def ingest(self, run: Run) -> None:
        self.machine.time = run.time
        source = one_file_a_commit(SIGNALS) if run.is_split else SIGNALS
        with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
            if run.dies_at is not None:
                Dying(patch, run.dies_at)
            ingest(self.lake, source, interval_end=run.interval_end)


@examples(20)
@given(st.lists(runs, min_size=3, max_size=6))
def test_every_landed_row_is_ingested_once_and_the_watermark_goes_on_from_commit_to_commit(runs):
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        world = World(root, patch)
        for run in runs:
            for file in run.files:
                world.land(file)
            world.ingest(run)
            check_watermark(world.lake)
            assert events_in_bronze(world.lake) <= world.events
        ingest(world.lake, SIGNALS)
        check_all_taken(world)


def check_all_taken(world: World) -> None:
    assert events_in_bronze(world.lake) == world.events
    refused = [(row["source_file"], row["row_number"]) for row in quarantine_of(world.lake)]
    assert sorted(refused) == sorted(world.refused)
    check_watermark(world.lake)
    assert waiting(world.lake, SIGNALS) == 0
    assert ingest(world.lake, replace(SIGNALS, heartbeat_delay=None)) == Counts()


def events_in_bronze(lake: Lake) -> Counter[tuple[str, str]]:
    """As they landed: the file and the line of each."""
    return Counter(
        (row.source_file, signal((row.event_time - START_US) / 1e6, row.device_id, row.value))
        for row in in_order(lake)
        if not row.is_heartbeat
    )


START_US = int(START.timestamp()) * 1_000_000


def check_watermark(lake: Lake) -> None:
    """One `ingested_at` a commit, which rises; watermarks that each go on from the one before."""
    commits = [list(rows) for _, rows in groupby(in_order(lake), key=lambda row: row.ingested_at)]
    assert len(commits) == DeltaTable(lake.bronze("signals")).version()  # each has rows
    before = None
    for rows in commits:
        assert {row.watermark_before for row in rows} == {before}
        (after,) = {row.watermark_after for row in rows}
        assert after == max(filter(None, [before, newest(rows)]))
        before = after


def newest(rows: list[SimpleNamespace]) -> int:
    return max(min(row.event_time, row.ingested_at) for row in rows) // 1000 * 1000
