"""All pages of ours, light and dark, by axe-core: as HTML alone, without a running Airflow."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import Browser

from include.lake.ops import append_ops
from include.lake.paths import Lake
from include.observe.explain import read_key
from include.observe.stream_line import read_overview
from include.page.render import key_html, message_html, overview_html, stream_html
from include.page.stream_figures import read_stream
from include.settings import Check
from tests.e2e.axe import axe_script, violations
from tests.e2e.chromium import chromium
from tests.page.history import NOW, streams_like, write_history
from tests.simulator.operations import Operations

pytestmark = [pytest.mark.e2e]


FITS = "[...document.querySelectorAll('.scroll')].every((each) => each.scrollWidth <= each.clientWidth)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_script(tmp_path_factory.mktemp("axe"))


def of_history(lake: Lake) -> Iterator[tuple[str, str]]:
    checks = (Check(name="low", each_row="count < 9"), Check(name="some", together="count(*) > 1"))
    streams = streams_like(3)
    streams[1] = replace(streams[1], checks=checks)
    write_history(lake, streams, 40)
    found = {"subject": streams[1].name, "finding": "data_check_failed", "severity": "error"}
    said = "check low: 2 of 9 rows do not meet `count < 9`"
    append_ops(lake, "findings", [found | {"found_at": NOW, "detail": said}])
    overview = read_overview(lake, streams, NOW)
    chain = [
        replace(line, depth=n, reads=(streams[0].name,) * n)
        for n, line in enumerate(overview.lines)
    ]
    overview = replace(overview, lines=tuple(chain))
    yield "all streams", overview_html(overview, lambda name: f"dags/stream_{name}")
    figures = read_stream(lake, streams[1], NOW, timedelta(days=2))
    yield "a stream", stream_html(figures)
    yield "a stream in Airflow", stream_html(figures, f"stream_{streams[1].name}")
    yield ("an empty stream", stream_html(read_stream(lake, replace(streams[0], name="new"), NOW)))
    yield "a message", message_html("stream_x is the Dag of no stream")


def of_a_lake_that_runs() -> Iterator[tuple[str, str]]:
    do = Operations("silences")
    do.some_days()
    do.land_late("a", [30], 1)
    do.run(None)
    lake, now = do.world.lake, do.world.now()
    yield "a key", key_html(read_key(lake, do.stream, "a", now, 30))
    do.close()


def test_axe_finds_nothing_wrong_with_any_page_light_or_dark(lake, browser, axe):
    found = {}
    for name, html in (*of_history(lake), *of_a_lake_that_runs()):
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            page.set_viewport_size({"width": 1_280, "height": 900})
            page.set_content(html)
            assert page.evaluate(FITS), name
            if wrong := violations(page, axe):
                found[name, scheme] = wrong
            page.close()
    assert found == {}


def test_axe_finds_what_is_wrong(browser, axe):
    page = browser.new_page()
    page.set_content("<html><body><img src='x.png'></body></html>")
    assert any(each.startswith("image-alt") for each in violations(page, axe))
