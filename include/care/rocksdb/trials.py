"""Whether a change on trial is kept: like batches under it against like batches before it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from include.care.rocksdb.history import Batch
from include.care.rocksdb.likeness import as_percent, changes, noise

# By so many batches. Simulated, with batches that differ by 10 or 30 % under one profile: of
# 4,000 trials without any effect 0 and 1 were kept; of those that save half at 10 %, 97 %.
MIN_BATCHES = 7
# A trial that never finds its like is given up.
MAX_RUNS = 30
# Kept only when its figure got smaller by a fifth at least, and by so many times the noise;
# and in no batch by less than LEAST of that.
MARGIN, NOISES, LEAST = -math.log(0.8), 3, 0.5
# Rolled back when the store's time got longer by half at least, and by so many times its noise.
SLOWER = math.log(1.5)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is to become of a trial, and why, with figures."""

    verdict: Literal["waiting", "kept", "rolled_back"]
    text: str


def can_be_judged(before: Sequence[Batch], figure: str) -> bool:
    """Whether enough is known of `figure` to start a trial: its noise, too."""
    return noise(before, figure) is not None


def judge(trial: Sequence[Batch], before: Sequence[Batch], figure: str, runs: int) -> Judgement:
    """Judge a trial of so many runs by its batches and those of the profile before.

    Once, by the first MIN_BATCHES that have their like before: who looks until it fits finds
    a gain in noise.
    """
    judged = [batch for batch in trial if changes([batch], before, figure)][:MIN_BATCHES]
    if len(judged) < MIN_BATCHES:
        return _wait(len(judged), runs)
    margin = max(MARGIN, NOISES * (noise(before, figure) or 0))
    found = changes(judged, before, figure)
    change = median(found)
    said = f"{figure} {as_percent(change)} in {len(found)} like batches"
    needed = f"kept from {as_percent(-margin)} on, which is above the noise"
    slower = _slower(judged, before)
    if change > -margin or max(found) > -LEAST * margin:
        return Judgement(verdict="rolled_back", text=f"{said}: no clear gain ({needed})")
    if slower is not None:
        text = f"{said}, but the store's time {as_percent(slower)}"
        return Judgement(verdict="rolled_back", text=text)
    return Judgement(verdict="kept", text=f"{said} ({needed})")


def _wait(batches: int, runs: int) -> Judgement:
    have = f"{batches} of {MIN_BATCHES} batches that have their like before the trial"
    if runs >= MAX_RUNS:
        return Judgement(verdict="rolled_back", text=f"given up after {runs} runs with {have}")
    return Judgement(verdict="waiting", text=f"{have}, after {runs} runs")


def _slower(judged: Sequence[Batch], before: Sequence[Batch]) -> float | None:
    """By how much the store got slower, if that is clear: its clocks are noisy."""
    found = changes(judged, before, "store_ms")
    margin = max(SLOWER, NOISES * (noise(before, "store_ms") or 0))
    return median(found) if median(found) > margin and min(found) > 0 else None
