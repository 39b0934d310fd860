"""A trial is kept for a clear gain only, and judged once."""

import random

import pytest

from include.care.rocksdb.trials import MAX_RUNS, MIN_BATCHES, can_be_judged, judge
from tests.care.rocksdb.made_batches import batch, batches

FIGURE = "bytes_rewritten"
BEFORE = batches([100, 103, 97, 101, 99, 100, 102, 98])


def verdict(values, before=BEFORE, runs=5, **figures) -> str:
    return judge(batches(values, **figures), before, FIGURE, runs).verdict


def test_it_waits_for_enough_like_batches():
    assert verdict([50] * (MIN_BATCHES - 1)) == "waiting"
    assert verdict([50] * MIN_BATCHES) == "kept"


def test_batches_without_their_like_do_not_count():
    other = [batch(n, 50, logs=500) for n in range(20)]
    judgement = judge(other, BEFORE, FIGURE, runs=20)
    assert (judgement.verdict, f"0 of {MIN_BATCHES}" in judgement.text) == ("waiting", True)


def test_batches_that_had_nothing_to_gain_neither_count_nor_spoil_it():
    idle = [batch(100 + n, 0, logs=500) for n in range(7)]
    assert judge([*idle, *batches([50] * 7)], [*BEFORE, *idle], FIGURE, 14).verdict == "kept"
    assert judge([*idle, *batches([50] * 6)], [*BEFORE, *idle], FIGURE, 13).verdict == "waiting"
    worse = [batch(200, 1, logs=500)]
    assert judge([*worse, *batches([50] * 6)], [*BEFORE, *idle], FIGURE, 7).verdict == "rolled_back"


def test_it_is_given_up_when_none_come():
    assert verdict([50], runs=MAX_RUNS - 1) == "waiting"
    assert verdict([50], runs=MAX_RUNS) == "rolled_back"
    assert verdict([], before=[], runs=MAX_RUNS) == "rolled_back"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([79.9] * 7, "kept"),  # a fifth
        ([81] * 7, "rolled_back"),
        ([100] * 7, "rolled_back"),
        ([300] * 7, "rolled_back"),
        ([0] * 7, "kept"),
        ([70] * 6 + [95], "rolled_back"),  # not without one that hardly gained
        ([70] * 6 + [84], "kept"),
    ],
)
def test_it_is_kept_for_a_fifth_less_in_every_batch(values, expected):
    assert verdict(values) == expected


def test_in_noise_the_gain_must_be_three_times_as_large_as_it():
    noisy = batches([100, 160, 60, 140, 70, 100, 150, 65])
    assert verdict([40] * 7, before=noisy) == "rolled_back"
    assert verdict([20] * 7, before=noisy) == "kept"
    less = batches([100, 115, 88, 112, 90, 100, 110, 92])
    assert verdict([75] * 7, before=less) == "rolled_back"
    assert verdict([65] * 7, before=less) == "kept"


def test_only_the_first_ones_count():
    assert verdict([100] * 7 + [10] * 20) == "rolled_back"
    assert verdict([50] * 7 + [500] * 20) == "kept"


def test_a_gain_in_bytes_does_not_pay_for_a_store_that_is_clearly_slower():
    assert verdict([50] * 7, store_ms=1_400) == "kept"  # clocks are noisy
    assert verdict([50] * 7, store_ms=1_600) == "rolled_back"
    slow_now_and_then = [batch(n, 50, store_ms=ms) for n, ms in enumerate([9_000] * 6 + [900])]
    assert judge(slow_now_and_then, BEFORE, FIGURE, 5).verdict == "kept"


def test_figures_are_in_the_text():
    text = judge(batches([50] * 7), BEFORE, FIGURE, 5).text
    assert "bytes_rewritten -50 % in 7 like batches" in text
    assert "-20 %" in text


def test_a_trial_needs_to_know_the_noise_before_it_begins():
    assert can_be_judged(BEFORE, FIGURE)
    assert not can_be_judged(BEFORE[:7], FIGURE)


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
def test_of_a_thousand_trials_without_an_effect_next_to_none_is_kept(sigma):
    rng = random.Random(7)
    kept = 0
    for _ in range(1_000):
        before = batches([rng.lognormvariate(0, sigma) * 1e6 for _ in range(8)])
        trial = batches([rng.lognormvariate(0, sigma) * 1e6 for _ in range(7)])
        kept += judge(trial, before, FIGURE, 5).verdict == "kept"
    assert kept <= 1
