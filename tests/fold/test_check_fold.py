"""`check_fold` finds each planted bug, tells it in a case that one can read, and finds no others."""

from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from include.fold.records import Instant
from include.fold.testing.check import BrokenLawError, check_fold
from include.streams import user_counts
from include.streams.user_counts import Total
from tests.fold.planted import WRONG
from tests.fold.right_folds import RIGHT

pytestmark = pytest.mark.slow


def broken(fold: Any, **settings: Any) -> str:
    with pytest.raises(BrokenLawError) as raised:
        check_fold(fold, **settings)
    return str(raised.value)


# By seed 0 it is found as well, in a case that takes Hypothesis three times as long to make small.
SEEDS = {"float_sum_per_call": 2}


@pytest.mark.parametrize("bug", WRONG)
def test_a_planted_bug_is_found_and_told(bug):
    assert "called with [" in broken(WRONG[bug], seed=SEEDS.get(bug, 0))


@pytest.mark.parametrize("function", RIGHT)
def test_a_function_that_keeps_the_law_passes(function):
    check_fold(RIGHT[function], examples=50)


def test_the_smallest_case_is_told_run_by_run():
    assert broken(WRONG["count_of_calls"]).splitlines()[:-1] == [
        "count_of_calls depends on how its input is cut into runs:",
        "  called with [Purchase(user_id='a', event_time_us=1000000, event_type='a', value=0.0)]",
        "  and then with [Purchase(user_id='a', event_time_us=1000001, event_type='a', value=0.0)]",
        "  it gives",
        "    outputs Spending(user_id='a', total=0.0, number=2) at 1000001",
        "  with all at once",
        "    outputs Spending(user_id='a', total=0.0, number=1) at 1000001",
    ]


def test_states_may_be_kept_without_a_timeout_if_that_is_meant():
    check_fold(WRONG["state_not_removed_on_timeout"], may_keep=True, examples=50)


def test_values_that_do_not_occur_are_not_tried():
    occurring = st.floats(0.5, 100.0)
    check_fold(WRONG["division_by_a_value"], values={"value": occurring}, examples=50)


class OldTotal(NamedTuple):
    count: int | None


def migrate_state(old: dict[str, Any]) -> Total:
    return Total(old["count"] or 0)


def test_a_migration_that_keeps_the_law_passes():
    check_fold(user_counts.FOLD, migrate_state=migrate_state, old_state=OldTotal, examples=50)


CALLS: list[Any] = []


def count_migrations(old: dict[str, Any]) -> Total:
    CALLS.append(old)
    return Total(len(CALLS))


@pytest.mark.parametrize(
    ("migrate", "says"),
    [
        (lambda old: Total(old["count"]), "is not declared `| None`"),
        (lambda old: old["count"], "and not a Total"),
        (lambda old: Total(old["total"]), "KeyError: 'total'"),
        (count_migrations, "the same again"),
    ],
)
def test_a_migration_with_a_bug_is_found(migrate, says):
    assert says in broken(user_counts.FOLD, migrate_state=migrate, old_state=OldTotal)


class Status(Enum):
    OPEN, PAID = "open", "paid"


class Place(NamedTuple):
    city: str


class OldOrder(NamedTuple):
    at: Instant
    status: Status
    place: Place


@pytest.mark.parametrize(
    "migrate",
    [
        lambda old: Total({"open": 1, "paid": 2}[old["status"]]),
        lambda old: Total(int(old["at"].timestamp())),
        lambda old: Total(len(old["place"]["city"])),
    ],
)
def test_a_migration_is_given_the_values_that_a_rebuild_reads(migrate):
    check_fold(user_counts.FOLD, migrate_state=migrate, old_state=OldOrder, examples=50)


def test_a_migration_needs_the_record_of_the_old_states():
    with pytest.raises(ValueError):
        check_fold(user_counts.FOLD, migrate_state=migrate_state)


def test_dead_letters_must_not_depend_on_the_cut_either():
    check_fold(replace(WRONG["division_by_a_value"], on_error="dead_letter"), examples=50)
