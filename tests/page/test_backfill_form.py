"""A backfill's plan on its page, and what Airflow is asked for: those runs and no others."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from include.page.render import BackfillForm, backfill_html, read_form
from tests.simulator.operations import Operations

pytestmark = pytest.mark.slow

DAG = "stream_sim"


@pytest.fixture
def do() -> Iterator[Operations]:
    operations = Operations("silences")
    operations.some_days()
    yield operations
    operations.close()


def form(do: Operations, start: str, until: str) -> BackfillForm:
    return read_form(do.world.lake, do.stream, DAG, start, until)


def day(do: Operations, ago: int) -> str:
    return f"{(do.world.now() - timedelta(days=ago)).date()}"


def test_the_request_is_for_the_runs_of_the_plan(do):
    do.land_late("a", [30], 1)
    do.run(None)
    found = form(do, day(do, 2), day(do, -1))
    assert found.plan is not None
    assert found.plan.unsettled > 0
    request = json.loads(found.request or "")
    assert request["dag_id"] == DAG
    starts = [run.start for run in found.plan.runs]
    ends = (request["from_date"], request["to_date"])
    assert tuple(map(datetime.fromisoformat, ends)) == (starts[0], starts[-1])
    assert found.plan.runs[-1].until <= found.plan.settled
    assert (request["reprocess_behavior"], request["max_active_runs"]) == ("completed", 1)
    assert found.changes
    assert 'id="make"' in backfill_html(found)


def test_a_plan_that_changes_nothing_is_known(do):
    do.reseed(None)
    found = form(do, day(do, 2), day(do, 1))
    assert found.changes == 0


@pytest.mark.parametrize(
    ("start", "until"),
    [
        ("soon", "2026-01-01"),
        ("2026-01-02", "2026-01-01"),
        ("1026-01-01", "2026-01-01"),
        ("2999-01-01", "2999-01-02"),
        ('"><script>x', "2026-01-01"),
    ],
)
def test_what_cannot_be_planned_is_refused_and_nothing_can_be_made(do, start, until):
    found = form(do, start, until)
    assert (found.plan, bool(found.refusal)) == (None, True)
    html = backfill_html(found)
    assert "<script>x" not in html
    assert 'id="make"' not in html


def test_an_empty_form_plans_nothing(do):
    assert form(do, "", "") == BackfillForm(stream=do.stream.name, dag_id=DAG, start="", until="")
