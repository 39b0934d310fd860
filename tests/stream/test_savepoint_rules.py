"""The rules of savepoints: when one is due, which one a replay starts with, which ones go."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.lake.generations import GenerationRow
from include.settings import SavepointRules
from include.stream.bronze import newest_bronze
from include.stream.manifest import (
    Savepoint,
    choose_starting_savepoint,
    retained_by,
)
from include.streams import user_counts
from include.streams.user_counts import UserEvent
from spark_jobs.replay_bronze import stops_on_the_way
from spark_jobs.write_savepoint import is_due
from tests.bronze import append_commit, stamp
from tests.refused import refused
from tests.stream.entries import IDENTITY

HOUR_US = 3_600_000_000
START_US = 1_750_032_000_000_000  # a midnight
WRITTEN = datetime(2026, 3, 1, tzinfo=UTC)
NOW = replace(IDENTITY, output_mode="update", delay_us=5, code="now")


def savepoint(until_us: int, events: int = 0, code: str = "now", bronze_id: str = "b") -> Savepoint:
    return Savepoint(
        savepoint_id=f"{until_us}-{events}-{code}",
        stream="user_counts",
        until_us=until_us,
        kind="live",
        run_id="r",
        keys=0,
        files={},
        events=events,
        bronze_id=bronze_id,
        bronze_ingested_at_us=None,
        code=code,
        state_schema="",
        created_at=WRITTEN,
    )


def test_a_savepoint_is_due_with_the_first_run_and_when_a_multiple_is_passed():
    rules = SavepointRules(cadence=timedelta(hours=1))
    assert is_due(rules, START_US, None)
    known = savepoint(START_US + 1)
    assert not is_due(rules, START_US + HOUR_US - 1, known)
    assert is_due(rules, START_US + HOUR_US, known)
    assert not is_due(SavepointRules(cadence=None), START_US + HOUR_US, None)


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"events_apart": 0}, {"cadence": timedelta(0)}])
def test_rules_that_cannot_be_are_refused(wrong):
    with refused("wrong_setting", subject=next(iter(wrong))):
        SavepointRules(**wrong)


def test_a_replay_starts_with_the_newest_valid_savepoint_of_this_code_and_this_bronze(lake):
    (rows,) = stamp([[UserEvent("u", START_US + n * HOUR_US) for n in range(10)]])
    append_commit(lake, "user_events", user_counts.FOLD, rows)
    bronze = newest_bronze(lake, "user_events")

    def at(hours: int, events: int, code: str = "now") -> Savepoint:
        return savepoint(START_US + hours * HOUR_US, events, code, bronze.table_id)

    valid, lacking, other_code = at(3, 3), at(4, 3), at(5, 5, "before")
    other_table, beyond = replace(at(5, 5), bronze_id="another"), at(7, 7)
    known = [valid, lacking, other_code, other_table, beyond]
    starting = choose_starting_savepoint(known, NOW, bronze, START_US + 6 * HOUR_US)
    assert (starting.savepoint, starting.events) == (valid, 3)
    assert choose_starting_savepoint(known, NOW, bronze, START_US + 7 * HOUR_US).savepoint == beyond
    assert choose_starting_savepoint(known, NOW, bronze, START_US).savepoint is None


@given(
    hours=st.lists(st.integers(0, 200), min_size=1, max_size=20, unique=True),
    keep=st.integers(1, 10),
    keep_hours=st.integers(1, 100),
    data=st.data(),
)
def test_what_goes_is_beyond_the_rules_and_not_needed(hours, keep, keep_hours, data):
    known = [savepoint(START_US + n * HOUR_US) for n in hours]
    rules = SavepointRules(keep=keep, keep_for=timedelta(hours=keep_hours))
    seed = data.draw(st.none() | st.sampled_from(known))
    row = None if seed is None else GenerationRow(seed_savepoint=seed.savepoint_id)
    retained = retained_by(known, rules, row)
    newest_us = max(sp.until_us for sp in known)
    needed = set() if seed is None else {seed.savepoint_id}
    by_rule = sorted(known, key=lambda sp: -sp.until_us)[:keep]
    wanted = {sp.savepoint_id for sp in by_rule if newest_us - sp.until_us <= keep_hours * HOUR_US}
    assert {sp.savepoint_id for sp in retained} == wanted | needed


def test_a_backfill_of_long_ago_keeps_what_its_next_interval_begins_with():
    rules = SavepointRules(keep_for=timedelta(days=1), keep_restated=timedelta(days=7))
    newest = replace(savepoint(START_US + 500 * HOUR_US), created_at=WRITTEN)
    just, over = WRITTEN - timedelta(days=7), WRITTEN - timedelta(days=7, microseconds=1)

    def old(hours: int, kind: str, created_at: datetime) -> Savepoint:
        made = savepoint(START_US + hours * HOUR_US)
        return replace(made, kind=kind, created_at=created_at)

    retained, too_old, live = old(1, "restate", just), old(2, "restate", over), old(3, "live", just)
    assert retained_by([newest, retained, too_old, live], rules, None) == [retained, newest]


STEP_US = 10
COUNTS = st.dictionaries(st.integers(-5, 40), st.integers(1, 9), max_size=20)


@given(counts=COUNTS, apart=st.integers(1, 30), until_us=st.integers(0, 450))
def test_each_stop_is_the_first_with_enough_events_since_the_last(counts, apart, until_us):
    stops = stops_on_the_way(counts, STEP_US, apart, until_us)
    assert stops == sorted(set(stops))

    def events(from_us: int, before_us: int) -> int:
        return sum(n for step, n in counts.items() if from_us <= step * STEP_US < before_us)

    first_us = min(counts, default=0) * STEP_US
    for from_us, stop_us in itertools.pairwise([first_us, *stops]):
        assert stop_us % STEP_US == 0
        assert stop_us < until_us
        assert events(from_us, stop_us - STEP_US) < apart <= events(from_us, stop_us)
    # After the last one nothing was worth another before the end.
    last_us = stops[-1] if stops else first_us
    for end_us in range(last_us + STEP_US, until_us, STEP_US):
        assert events(last_us, end_us) < apart
