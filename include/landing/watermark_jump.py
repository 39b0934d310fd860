"""A commit that moved the watermark of bronze further than time has passed: a wrong clock?

One producer whose clock is ahead makes the rows of all others late. Ingestion cannot tell that
from a load of history; so it takes the rows, and says which file it was.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

from include.fold.instants import MICROSECOND
from include.lake.findings import Finding
from include.landing.clock import Clock, as_text
from include.settings import Source

# Between a commit and the newest event in it.
SLACK = timedelta(hours=1)


class Jump(NamedTuple):
    """By what the watermark went beyond all other rows known, and with which file."""

    by_us: int
    passed_us: int  # since the commit before
    watermark_us: int
    file: str


# The file with a batch's newest event, and the newest time in any other one; None without another.
NewestFile = Callable[[], tuple[str, int | None]]


def find_jump(newest_file: NewestFile, source: Source, before: Clock, after: Clock) -> Jump | None:
    """None when M rose by no more than the time since the commit before, and some slack.

    Nor is it one when a second file of the commit is about as new, or the source has groups: then
    the newest event has not moved M (group_report.py).
    """
    if source.watermark_per is not None:
        return None
    marks = (before.watermark_us, after.watermark_us, before.ingested_at_us, after.ingested_at_us)
    if any(mark is None for mark in marks):
        return None
    from_us, to_us, last_us, now_us = (mark or 0 for mark in marks)
    passed_us = now_us - last_us
    most_us = passed_us + (source.max_future + SLACK) // MICROSECOND
    if to_us - from_us <= most_us:
        return None
    file, others_us = newest_file()
    by_us = to_us - max(from_us, others_us or from_us)
    return Jump(by_us, passed_us, to_us, file) if by_us > most_us else None


def jump_findings(source: Source, jumps: Sequence[Jump]) -> list[Finding]:
    """One warning for a run: of its furthest jump."""
    if not jumps:
        return []
    jump = max(jumps)
    return [
        Finding(
            finding="watermark_jumped",
            severity="warning",
            count=len(jumps),
            detail=f"{jump.file} moved the watermark of bronze/{source.name} "
            f"{_span(jump.by_us)} beyond all other rows, to {as_text(jump.watermark_us)}, "
            f"{_span(jump.passed_us)} after the commit before: what lands with older times than "
            "that, and a stream's watermark_delay, is late",
            action="if a clock is wrong, set it right, and then this source's by `./stateful repair-clock "
            f"{source.name} --to TO`, which shows what it would do; if this was a load of "
            "history, nothing",
        )
    ]


def _span(micros: int) -> str:
    return str(timedelta(seconds=micros // 1_000_000))
