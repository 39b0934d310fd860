"""What the clock of a simulation's source must show, written a second time, plainly.

As `oracle.py` it imports nothing of the project.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.simulator.shapes import Landed


class Commit(NamedTuple):
    """What one ingest run has taken in. Without rows: a heartbeat that says `clock_us`, or
    a repair, by which the source's clock shows `reset_us` from then on, whatever it showed."""

    now_us: int
    rows: tuple[Landed, ...]
    clock_us: int | None = None
    reset_us: int | None = None


class Marks(NamedTuple):
    """What the rows of a commit are stamped with."""

    arrival_us: int | None
    commit_us: int
    ingested_us: int


def plain_marks(commits: Sequence[Commit]) -> list[Marks]:
    marks: list[Marks] = []
    for commit in commits:
        before = marks[-1] if marks else None
        now_us = commit.now_us // 1000 * 1000
        at_us = now_us if before is None else max(now_us, before.ingested_us + 1000)
        clock_us = None if before is None else before.commit_us
        if commit.reset_us is not None:
            marks.append(Marks(clock_us, commit.reset_us // 1000 * 1000, at_us))
            continue
        times = [row.time_us for row in commit.rows] or [commit.clock_us]
        newest_us = min(max(times), at_us) // 1000 * 1000
        after_us = newest_us if clock_us is None else max(newest_us, clock_us)
        marks.append(Marks(clock_us, after_us, at_us))
    return marks


def clock_us(commits: Sequence[Commit], idle_us: int | None = None) -> int | None:
    """The source's clock after all commits; None before the first."""
    marks = plain_marks(commits) if idle_us is None else grouped_marks(commits, idle_us)
    return marks[-1].commit_us if marks else None


def grouped_marks(
    commits: Sequence[Commit], idle_us: int, known: Sequence[Marks] = ()
) -> list[Marks]:
    """The marks of each commit, of a source whose clock is that of its keys: the least that those
    which are not idle have reached. Each is found from all that came before it, anew.

    `known`: of the first commits.
    """
    marks = list(known)
    for number in range(len(marks), len(commits)):
        commit, before = commits[number], marks[-1] if marks else None
        now_us = commit.now_us // 1000 * 1000
        at_us = now_us if before is None else max(now_us, before.ingested_us + 1000)
        instants = [*(mark.ingested_us for mark in marks), at_us]
        arrival_us = before.commit_us if before is not None else None
        if commit.reset_us is not None:
            marks.append(Marks(arrival_us, commit.reset_us // 1000 * 1000, at_us))
            continue
        reached = list(_reached(commits[: number + 1], instants, idle_us).values())
        if commit.clock_us is not None:
            reached.append(min(commit.clock_us, at_us) // 1000 * 1000)
        after_us = min(reached) if arrival_us is None else max(min(reached), arrival_us)
        marks.append(Marks(arrival_us, after_us, at_us))
    return marks


def _reached(commits: Sequence[Commit], instants: Sequence[int], idle_us: int) -> dict[str, int]:
    """How far each key that is not idle has come, after the last of the commits."""
    reached, seen = dict[str, int](), dict[str, int]()
    for number, (commit, at_us) in enumerate(zip(commits, instants, strict=True)):
        if commit.reset_us is not None:
            back_us = commit.reset_us // 1000 * 1000
            reached = {key: min(us, back_us) for key, us in reached.items()}
        for row in commit.rows:
            us = min(row.time_us, at_us) // 1000 * 1000
            reached[row.key] = max(us, reached.get(row.key, us))
            seen[row.key] = number
    pauses = [min(b - a, idle_us // 2) for a, b in pairwise(instants)]
    return {key: us for key, us in reached.items() if sum(pauses[seen[key] :]) < idle_us}
