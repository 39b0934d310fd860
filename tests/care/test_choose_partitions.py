"""What is rewritten today: never more than the budget, and the right partitions first."""

from collections import Counter
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from include.care.plan_care import Candidate, Partition, candidates, choose
from include.limits import TABLE_CARE, TableCare
from tests.refused import refused

TODAY = date(2026, 3, 10)
CARE = replace(TABLE_CARE, table_bytes=100, day_bytes=150, min_small_files=4)


def partition(day: date | None = None, small_files: int = 4, small_bytes: int = 10) -> Partition:
    return Partition(day, small_files + 1, small_bytes + 1, small_files, small_bytes)


DAYS = st.none() | st.integers(-3, 3).map(lambda days: TODAY + timedelta(days))
PARTITIONS = st.builds(partition, DAYS, st.integers(0, 9), st.integers(0, 130))
# A table has one partition of each date.
TABLES = st.dictionaries(
    st.sampled_from("abc"), st.lists(PARTITIONS, unique_by=lambda partition: partition.value)
)
SPENT = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 120))


def all_candidates(tables) -> list[Candidate]:
    return [found for name, parts in tables.items() for found in candidates(name, parts, CARE)]


def cost(chosen) -> int:
    return sum(candidate.partition.small_bytes for candidate in chosen)


@given(TABLES)
def test_a_partition_with_few_small_files_is_no_candidate(tables):
    found = all_candidates(tables)
    expected = {(t, p.value) for t, parts in tables.items() for p in parts if p.small_files >= 4}
    assert {(candidate.table, candidate.partition.value) for candidate in found} == expected
    assert len(found) == len(expected)


@given(TABLES, SPENT)
def test_a_day_never_rewrites_more_than_its_budget(tables, spent):
    chosen = choose(all_candidates(tables), CARE, spent, TODAY)
    assert cost(chosen) == 0 or cost(chosen) + sum(spent.values()) <= CARE.day_bytes
    for table in tables:
        ours = cost(candidate for candidate in chosen if candidate.table == table)
        assert ours == 0 or ours + spent.get(table, 0) <= CARE.table_bytes


@example({"a": [partition(None, 9, 101), partition(TODAY, 4, 100)]}, {})
@given(TABLES, SPENT)
def test_what_is_left_out_had_no_room_beside_what_goes_before_it(tables, spent):
    """Before it: dates that are over, and among these and among the others most small files."""
    found = all_candidates(tables)
    chosen = choose(found, CARE, spent, TODAY)
    assert not Counter(chosen) - Counter(found)

    def rank(candidate: Candidate) -> tuple[bool, int]:
        day = candidate.partition.value
        return (day is not None and day >= TODAY, -candidate.partition.small_files)

    for left in set(found) - set(chosen):
        # Those of the same rank may stand on either side of it.
        before = [other for other in chosen if rank(other) <= rank(left)]
        ours = [other for other in before if other.table == left.table]
        in_table = spent.get(left.table, 0) + cost([*ours, left])
        in_all = sum(spent.values()) + cost([*before, left])
        assert in_table > CARE.table_bytes or in_all > CARE.day_bytes


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        ({"small_file_bytes": 0}, "small_file_bytes"),
        ({"small_file_bytes": 65, "target_file_bytes": 129}, "small_file_bytes"),
        ({"min_small_files": 1}, "min_small_files"),
        ({"day_bytes": 0}, "day_bytes"),
        ({"min_garbage_files": 0}, "min_garbage_files"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, subject):
    with refused("wrong_setting", subject=subject):
        TableCare(**change)
