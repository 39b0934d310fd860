"""Which batches are compared, and what counts as noise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.care.rocksdb.likeness import as_percent, changes, is_like, noise
from tests.care.rocksdb.made_batches import batch, batches

FIGURE = "bytes_rewritten"


def percents(after, before) -> list[str]:
    return [as_percent(change) for change in changes(after, before, FIGURE)]


@pytest.mark.parametrize(
    ("one", "other", "like"),
    [
        ({"rows": 1_000}, {"rows": 2_000}, True),
        ({"rows": 1_000}, {"rows": 2_001}, False),
        ({"rows": 1_023}, {"rows": 1_024}, True),
        ({"logs": 0}, {"logs": 0}, True),
        ({"logs": 0}, {"logs": 1}, False),
        ({"logs": 60}, {"logs": 80}, True),
        ({"logs": 59}, {"logs": 80}, False),
    ],
)
def test_like_batches_read_as_many_rows_and_replayed_as_many_logs(one, other, like):
    first, second = batch(1, 0, **one), batch(2, 0, **other)
    assert is_like(first, second) is like
    assert is_like(second, first) is like
    assert is_like(first, first)


def test_a_batch_is_compared_with_the_median_of_its_like():
    before = [batch(1, 100), batch(2, 120), batch(3, 900), batch(4, 5, logs=80)]
    assert percents([batch(9, 60)], before) == ["-50 %"]
    assert percents([batch(9, 10, logs=80)], before) == ["+100 %"]


def test_a_batch_without_its_like_is_left_out():
    assert changes([batch(9, 60, logs=200)], [batch(1, 100)], FIGURE) == []
    assert changes([batch(9, 60)], [], FIGURE) == []


def test_more_than_nothing_is_no_infinite_change():
    assert percents([batch(9, 0.003)], [batch(1, 0)]) == ["+300 %"]  # bytes


def test_where_there_is_none_before_and_after_nothing_is_learnt():
    assert changes([batch(9, 0)], [batch(1, 0)], FIGURE) == []
    assert percents([batch(9, 0)], [batch(1, 100)]) == ["-100 %"]
    assert noise([*batches([100] * 7), *(batch(n, 0, logs=0) for n in range(20))], FIGURE) is None


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_there_and_back_weigh_the_same(one, other):
    (there,) = changes([batch(1, one)], [batch(2, other)], FIGURE)
    (back,) = changes([batch(2, other)], [batch(1, one)], FIGURE)
    assert there == pytest.approx(-back)


def test_without_eight_comparisons_the_noise_is_unknown():
    assert noise(batches([100] * 7), FIGURE) is None
    assert noise(batches([100] * 8), FIGURE) == 0
    apart = [batch(n, 100, logs=8 * 2**n) for n in range(10)]
    assert noise(apart, FIGURE) is None


def test_one_odd_batch_does_not_make_all_of_it_noise():
    steady = batches([100, 102, 98, 101, 99, 100, 100])
    assert noise([*steady, batch(50, 10_000)], FIGURE) < 0.03


@given(st.lists(st.floats(1e3, 1e9), min_size=8, max_size=12), st.floats(1, 1000))
def test_noise_does_not_depend_on_the_unit(values, unit):
    plain = noise(batches(values), FIGURE)
    scaled = noise(batches([value * unit for value in values]), FIGURE)
    assert scaled == pytest.approx(plain, abs=2e-3)
