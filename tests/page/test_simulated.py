"""Pages of lakes that real jobs have made, by the local engine: after each, as a check judges."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from include.fold.failures import StateFunctionError
from include.observe.stream_line import Recorded, line_of
from include.page.render import stream_html
from include.page.stream_figures import StreamFigures, read_stream
from include.stream.stream_status import stream_status
from spark_jobs.run_stream import drain
from tests.refused import commands_in
from tests.simulator.operations import Operations
from tests.simulator.oracle import FAILS
from tests.simulator.sequences import days_in_time

pytestmark = pytest.mark.slow


@pytest.fixture(params=["silences", pytest.param("counts", marks=pytest.mark.full)])
def do(request: pytest.FixtureRequest) -> Iterator[Operations]:
    operations = Operations(request.param)
    operations.some_days()
    yield operations
    operations.close()


def seen(do: Operations) -> StreamFigures:
    """The stream's figures; its table_status is the same in the overview, here and for a check."""
    lake, stream, now = do.world.lake, do.stream, do.world.now()
    judged = stream_status(lake, stream)
    assert judged.opened.mismatch is None
    recorded = Recorded(lake, now - timedelta(days=30))
    figures = read_stream(lake, stream, now, timedelta(days=30))
    assert figures.problems == {}
    assert figures.line.days == line_of(recorded, stream, now).days
    assert figures.line.status.table_status == judged.table_status
    assert stream.name in stream_html(figures)
    return figures


def test_what_is_wrong_with_a_table_is_on_its_pages_until_it_is_mended(do):
    days_in_time(do)
    before = seen(do)
    assert {day.status for day in before.line.days} == {"none", "right", "incomplete"}
    # Asked for no time, it shows that of its data, however long ago that was.
    shown = read_stream(do.world.lake, do.stream, do.world.now() + timedelta(days=200)).line.days
    assert shown == tuple(day for day in before.line.days if day.status != "none")

    do.land_late("a", [30], 1)  # and nobody has run since
    figures = seen(do)
    assert "late" in {day.status for day in figures.line.days}
    (advice, *_) = figures.line.status.findings
    assert advice.finding == "late_rows_not_restated"
    if do.kind == "silences":
        assert commands_in(advice.action)[0].startswith(f"restate {do.stream.name} ")

    do.run(None)
    assert seen(do).line.rows["late"] == before.line.rows["late"] + 1

    do.backfill(ago=40, span=30, kill=None)
    figures = seen(do)
    assert figures.restates[0]["job"] == "restate_interval"

    do.rebuild(None)
    figures = seen(do)
    assert "late" not in {day.status for day in figures.line.days}
    assert (figures.line.status.table_status.wrong, figures.line.status.findings) == ((), [])
    assert figures.restates[0]["job"] == "rebuild_stream"

    do.deploy("b")
    do.pass_time(60)
    do.land_in_time("a", [1], 5)
    do.pass_time(60)
    do.heartbeat()
    do.run(None)
    assert "code" in {day.status for day in seen(do).line.days}


def test_a_rewind_takes_back_how_complete_a_table_is(do):
    before = seen(do).line.until
    do.rewind(None, ago=30)
    after = seen(do).line.until
    assert before is not None
    assert after is not None
    assert after < before


def test_of_a_table_with_nothing_complete_nothing_is_said_to_be_right():
    """Its first run has failed."""
    do = Operations("counts", on_error="stop")
    try:
        do.deploy("e")
        do.pass_time(30)
        do.land_in_time("a", [1], FAILS)
        do.pass_time(30)
        do.heartbeat()
        with pytest.raises(StateFunctionError):
            drain(do.world.engine, do.world.lake, do.stream)
        figures = seen(do)
    finally:
        do.close()
    assert figures.line.until is None
    assert "right" not in {day.status for day in figures.line.days}
