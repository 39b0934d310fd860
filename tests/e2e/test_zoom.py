"""Another time of a stream's page, as a person asks for it: in a Chromium, without an Airflow.

The addresses that the page leads to are answered here, by what Airflow's app answers with.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from include.lake.paths import Lake
from include.page.render import message_html, stream_html
from include.page.shown_time import asked_time
from include.page.stream_figures import read_stream
from include.settings import SettingsError
from tests.e2e.axe import axe_script, violations
from tests.e2e.charts import chart, drag, span
from tests.e2e.chromium import chromium
from tests.page.history import NOW, streams_like, write_history

pytestmark = [pytest.mark.e2e]
(STREAM,) = streams_like(1)
ADDRESS = f"http://lake.test/state/dags/stream_{STREAM.name}"
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NAMES = {"from": "start", "until": "until", "zone": "zone"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    write_history(lake, [STREAM], 40)
    return lake


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, filled: Lake) -> Iterator[Page]:
    """In Berlin, where the time is another one than on the page."""

    def answer(route: Route) -> None:
        asked = dict(parse_qsl(urlsplit(route.request.url).query))
        days = int(asked.pop("days")) if "days" in asked else None
        try:
            time = asked_time(NOW, days=days, **{NAMES[name]: asked[name] for name in asked})
            html = stream_html(read_stream(filled, STREAM, NOW, *time), f"stream_{STREAM.name}")
            route.fulfill(body=html, content_type="text/html")
        except SettingsError as error:
            route.fulfill(body=message_html(str(error)), content_type="text/html", status=400)

    context = browser.new_context(timezone_id="Europe/Berlin")
    page = context.new_page()
    page.route("http://lake.test/**", answer)
    page.goto(f"{ADDRESS}?days=2")
    yield page
    context.close()


def ended_runs(page: Page) -> list[datetime]:
    cells = page.locator("[aria-labelledby=runs] tbody th")
    return [datetime.fromisoformat(f"{text}Z") for text in cells.all_inner_texts()]


@pytest.mark.parametrize(("first", "last"), [(0.25, 0.5), (0.5, 0.25)])
def test_dragging_over_a_chart_shows_that_time(page, first, last):
    begin, end = span(page)
    drag(page.mouse, page, first, last)
    page.wait_for_url("**?from=*")
    found = span(page)
    low, high = sorted((first, last))
    wanted = begin + low * (end - begin), begin + high * (end - begin)
    pixel = (end - begin) / 300
    assert all(abs(a - b) <= pixel for a, b in zip(found, wanted, strict=True))
    ended = ended_runs(page)
    assert ended
    assert all(found[0] <= at < found[1] for at in ended)
    assert len(ended) in (11, 12, 13)


def test_one_can_drag_down_to_a_run_and_go_back(page):
    ended = NOW.replace(minute=2) - 10 * HOUR
    for _ in range(4):
        begin, end = span(page)
        at = (ended - begin) / (end - begin)
        before = page.url
        drag(page.mouse, page, max(at - 0.05, 0), min(at + 0.05, 1))
        page.wait_for_url(lambda url, before=before: url != before)
    begin, end = span(page)
    assert end - begin <= timedelta(minutes=1)
    assert ended_runs(page) == [ended]
    page.go_back()
    assert span(page)[1] - span(page)[0] > end - begin


def test_dragging_beyond_an_edge_ends_at_it(page):
    begin, _ = span(page)
    _, box = chart(page)
    drag(page.mouse, page, 0.25, 0, let_go=False)
    page.mouse.move(box["x"] - 5, box["y"] + 5)
    page.mouse.up()
    page.wait_for_url("**?from=*")
    assert span(page)[0] == begin


def test_a_click_and_an_escape_change_nothing(page):
    before = page.url
    svg, _ = chart(page)
    svg.click()
    drag(page.mouse, page, 0.2, 0.6, let_go=False)
    expect(page.locator("rect.chosen")).to_have_count(1)
    expect(page.locator("#drag")).to_contain_text("UTC; Escape leaves it.")
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator("rect.chosen")).to_have_count(0)
    expect(page.locator("#drag")).to_have_text("Drag over a chart to see that time closer.")
    assert page.url == before


def test_the_form_does_the_same_by_the_keyboard_alone(page):
    page.get_by_label("From").fill("2026-11-24T03:00:00")
    page.get_by_label("until").fill("2026-11-24T05:00:00")
    page.get_by_label("until").press("Enter")
    page.wait_for_url("**?from=*")
    midnight = NOW.replace(hour=0, minute=0)
    assert span(page) == (midnight + 3 * HOUR, midnight + 5 * HOUR)
    assert [f"{at:%H:%M}" for at in ended_runs(page)] == ["04:02", "03:02"]
    for move, wanted in (("earlier", (1, 3)), ("later", (3, 5)), ("wider", (2, 6))):
        link = page.get_by_role("link", name=move, exact=True)
        link.focus()
        page.keyboard.press("Enter")
        expect(page.locator("header")).to_contain_text(f"until {midnight + wanted[1] * HOUR:%F %T}")
        assert span(page) == tuple(midnight + hours * HOUR for hours in wanted)


def test_a_run_leads_to_its_own_time(page):
    page.locator("[aria-labelledby=runs] tbody th a").last.click()
    page.wait_for_url("**?from=*")
    assert len(ended_runs(page)) == 1
    begin, end = span(page)
    assert HOUR < end - begin < HOUR + timedelta(minutes=1)


def test_what_cannot_be_shown_is_said_and_what_was_written_is_text(page):
    answer = page.goto(f"{ADDRESS}?from=<img src=x onerror=alert(1)>")
    assert answer is not None
    assert answer.status == 400
    expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("img")).to_have_count(0)


def test_a_report_has_no_zoom_as_nobody_would_answer(page, filled):
    page.set_content(stream_html(read_stream(filled, STREAM, NOW, 2 * DAY)))
    expect(page.locator(".charts svg").first).to_be_visible()
    expect(page.locator("form, #charts, #drag, header a, tbody a")).to_have_count(0)


@pytest.mark.parametrize("query", ["days=2", "from=2026-11-24T03:00Z&until=2026-11-24T05:00Z"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong_while_a_time_is_chosen(page, tmp_path, query, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{ADDRESS}?{query}")
    script = axe_script(tmp_path)
    assert violations(page, script) == []
    drag(page.mouse, page, 0.2, 0.6, let_go=False)
    expect(page.locator("rect.chosen")).to_have_count(1)
    assert violations(page, script) == []
