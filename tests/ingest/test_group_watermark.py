"""The watermark of a source by groups, against an oracle that finds each commit's from all before it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from include.fold.admission import MICROSECOND
from include.ingest.ingest import heartbeat, write_keepalive
from include.ingest.ingest_log import Ingestion
from include.ingest.parse_files import bronze_rows
from include.ingest.watermark import (
    SourceWatermark,
    advance_watermark,
    logged_groups,
    set_watermark_back,
)
from include.lake.paths import Lake
from include.settings import Field, Source
from tests.examples import examples
from tests.simulator import oracle
from tests.simulator.oracle import Commit, Landed, Marks
from tests.watermarks import watermark_of

START_US = 1_750_032_000_000_000
MINUTE_US = 60_000_000
IDLE = timedelta(minutes=30)
IDLE_US = IDLE // MICROSECOND
SOURCE = Source(
    name="sent",
    time_field="sent_at",
    comment="What producers send",
    fields=(
        Field(name="key", type="string", comment="Whose it is"),
        Field(name="value", type="bigint", comment="How much"),
    ),
    watermark_per="key",
    idle_after=IDLE,
)
EMPTY = SourceWatermark(groups=logged_groups({}, SOURCE))

# Few and at the edges, so that groups meet, fall idle exactly, and wake.
MINUTES = st.sampled_from([0, 1, 14, 15, 16, 29, 30, 31, 60, 1440])
NEARLY_US = st.sampled_from([0, 0, 0, 1, 999, 1000, -1, -1000])
KEYS = st.sampled_from("abcd")


class Step(NamedTuple):
    """A commit to come: how long after the one before, and its times before its own."""

    passed_us: int
    rows: tuple[tuple[str, int], ...] = ()  # key, ago
    clock_ago_us: int | None = None
    reset_ago_us: int | None = None


def spans() -> st.SearchStrategy[int]:
    return st.builds(lambda minutes, us: max(0, minutes * MINUTE_US + us), MINUTES, NEARLY_US)


AGO = spans() | spans().map(lambda us: -us)
LANDED = st.lists(st.tuples(KEYS, AGO), min_size=1, max_size=4).map(tuple)
NONE = st.none()
# Of a NamedTuple Hypothesis draws what has a default, too, where it is not given.
STEPS = st.lists(
    st.builds(Step, spans(), LANDED, NONE, NONE)
    | st.builds(Step, spans(), st.just(()), spans(), NONE)
    | st.builds(Step, spans(), st.just(()), NONE, spans()),
    max_size=14,
)


def commits_of(steps: Sequence[Step]) -> list[Commit]:
    """As the oracle has them; the first is of rows, and what says nothing new is left out."""
    now_us, commits = START_US, [Commit(START_US, (Landed("a", START_US, 1),))]
    for step in steps:
        now_us += step.passed_us
        last_us = oracle.grouped_marks(commits, IDLE_US)[-1].commit_us
        rows = tuple(Landed(key, now_us - ago_us, 1) for key, ago_us in step.rows)
        if rows:
            commits.append(Commit(now_us, rows))
        elif step.clock_ago_us is not None and now_us - step.clock_ago_us > last_us:
            commits.append(Commit(now_us, (), clock_us=now_us - step.clock_ago_us))
        elif step.reset_ago_us is not None and now_us - step.reset_ago_us < last_us:
            commits.append(Commit(now_us, (), reset_us=now_us - step.reset_ago_us))
    return commits


def next_watermark(before: SourceWatermark, commit: Commit) -> SourceWatermark:
    if commit.reset_us is not None:
        return set_watermark_back(before, commit.reset_us, commit.now_us)
    if commit.clock_us is not None:
        return advance_watermark(before, commit.clock_us, commit.now_us)
    newest = {r.key: max(s.time_us for s in commit.rows if s.key == r.key) for r in commit.rows}
    return advance_watermark(before, max(newest.values()), commit.now_us, newest)


@given(STEPS)
@examples(500)
def test_the_marks_of_each_commit_are_those_of_all_that_came_before(steps: list[Step]):
    commits = commits_of(steps)
    known, marks = EMPTY, []
    for commit in commits:
        before, known = known, next_watermark(known, commit)
        marks.append(Marks(before.watermark_us, known.watermark_us, known.ingested_at_us))
    assert marks == oracle.grouped_marks(commits, IDLE_US)


# In bronze


def append(lake: Lake, commit: Commit) -> None:
    before = watermark_of(lake, SOURCE)
    after = next_watermark(before, commit)
    rows = (
        bronze_rows(SOURCE, events_of(commit), before, after)
        if commit.rows
        else heartbeat(SOURCE, before, after)
    )
    Ingestion(lake, SOURCE).commit_rows(before, after, rows)


def events_of(commit: Commit) -> pa.Table:
    return pa.table(
        {
            "key": [row.key for row in commit.rows],
            "value": [row.value for row in commit.rows],
            "event_time_us": [row.time_us for row in commit.rows],
            "source_file": ["x/a.jsonl"] * len(commit.rows),
        }
    )


def marks_in(lake: Lake) -> set[Marks]:
    table = DeltaTable(lake.bronze("sent")).to_pyarrow_table()
    names = ("watermark_before", "watermark_after", "ingested_at")
    columns = (table[name].cast(pa.int64()).to_pylist() for name in names)
    return {Marks(*row) for row in zip(*columns, strict=True)}


BETWEEN = st.sampled_from(["nothing", "nothing", "heartbeat", "joined"])


@given(STEPS, st.lists(BETWEEN, min_size=15, max_size=15))
@examples(60)
def test_bronze_goes_on_from_its_log(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], between: list[str]
):
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    commits = commits_of(steps)
    for commit, then in zip(commits, between, strict=False):
        append(lake, commit)
        if then == "heartbeat":
            write_keepalive(lake, SOURCE)
        if then == "joined":
            DeltaTable(lake.bronze("sent")).optimize.compact()
    expected = oracle.grouped_marks(commits, IDLE_US)
    still = {mark._replace(arrival_us=mark.commit_us) for mark in expected}
    assert set(expected) <= marks_in(lake) <= set(expected) | still


# One by one


def landed(before: SourceWatermark, at_minute: float, **minutes: float) -> SourceWatermark:
    newest = {key: START_US + int(minute * MINUTE_US) for key, minute in minutes.items()}
    now_us = START_US + int(at_minute * MINUTE_US)
    return advance_watermark(before, max(newest.values()), now_us, newest)


def test_idle_groups_that_the_watermark_has_passed_are_forgotten():
    clock = SourceWatermark(groups=logged_groups({}, replace(SOURCE, watermark_groups=2)))
    for day in range(10):  # as folders of days come and go
        clock = landed(clock, day * 1440, **{f"day{day}": day * 1440})
        clock = landed(clock, day * 1440 + 15, **{f"day{day}": day * 1440})
    assert clock.groups is not None
    assert set(clock.groups.of) == {"day9"}
