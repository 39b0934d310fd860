"""Which batches may be compared, and how much they differ when nothing was changed.

A batch is like another that read as many rows, within a factor of two, and whose start had
replayed as many change logs, within a quarter: both grow and shrink by themselves, the logs
with each run until a compaction.
"""

import math
from collections.abc import Sequence
from statistics import median

from include.care.rocksdb.history import Batch

ROWS_FACTOR = 2
REPLAY_TOLERANCE = 0.25
# Of fewer, a noise that looks small by luck lets changes pass that have no effect.
MIN_DIFFERENCES = 8


def is_like(one: Batch, other: Batch) -> bool:
    """Whether the two may be compared."""
    logs = one.figures["logs_replayed"], other.figures["logs_replayed"]
    rows = one.rows_in, other.rows_in
    near = max(logs) - min(logs) <= REPLAY_TOLERANCE * max(logs)
    return near and max(rows) <= ROWS_FACTOR * min(rows)


def changes(batches: Sequence[Batch], before: Sequence[Batch], figure: str) -> list[float]:
    """How much of `figure` each batch has less (-) or more than its like in `before`.

    The logarithm of the ratio, so that to double and to halve weigh the same: `as_percent`
    is for people. Left out is a batch with no like before, and one that has none of `figure`,
    as they: where there is nothing to gain, nothing can be learnt.
    """
    found = []
    for batch in batches:
        like = [b.figures[figure] for b in before if b is not batch and is_like(b, batch)]
        was, now = median(like or [0]), batch.figures[figure]
        if like and (was or now):
            # One byte or millisecond more than none is no infinite change.
            found.append(math.log((now + 1) / (was + 1)))
    return found


def as_percent(change: float) -> str:
    """A change for people: -50 % is half of it."""
    return f"{100 * math.expm1(change):+.0f} %"


def noise(batches: Sequence[Batch], figure: str) -> float | None:
    """How much a batch differs from its like under one profile; None where too few have any.

    The median of the changes without a sign: one odd batch does not make everything noise.
    """
    differences = [abs(change) for change in changes(batches, batches, figure)]
    return median(differences) if len(differences) >= MIN_DIFFERENCES else None
