"""Two runs that plan at once, where no lease keeps them apart: a file is in one batch alone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest

from include.lake import ops
from include.lake.paths import Lake
from include.landing import ingest_position
from include.landing.arrivals import Listed
from include.landing.batch import Batch
from include.landing.ingest_position import next_batch
from include.landing.landed_content import landed_files
from tests.ingested import SIGNALS, rows_of
from tests.landed_files import Landing
from tests.planned import NOW, plan, take


def before_commit(patch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let somebody else do something just before the first plan is committed."""
    commit = ingest_position.commit_next

    def wait_and_commit(*given: Any) -> None:
        patch.setattr(ingest_position, "commit_next", commit)
        meanwhile()
        commit(*given)

    patch.setattr(ingest_position, "commit_next", wait_and_commit)
    patch.setattr(ops.time, "sleep", lambda _: None)


def test_who_plans_second_takes_what_the_first_has_left(
    made: Lake, landed: Landing, monkeypatch: pytest.MonkeyPatch
):
    for name in "ab":
        landed.add(name, "1")
    before_commit(monkeypatch, lambda: take(made, commit_bytes=1))
    mine = plan(made)
    assert mine is not None
    assert (mine.number, mine.files) == (1, ("b",))


def test_planners_of_several_processes_plan_one_batch(made: Lake, landed: Landing):
    for name in "abc":
        landed.add(name, "")
    together = Barrier(4)

    def plan_together(number: int) -> Batch | None:
        listed = Listed(landed_files(made, "signals")[number:])
        together.wait()
        return next_batch(made, SIGNALS, listed, NOW + timedelta(hours=number))

    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(plan_together, [0, 1, 2, 0]))
    assert all(each == plans[0] for each in plans)
    assert len(rows_of(made.ingested_files("signals"))) == len(plans[0].files)  # type: ignore[union-attr]
