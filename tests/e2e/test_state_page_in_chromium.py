"""The pages of streams as a person sees them: in a running Airflow, by a headless Chromium."""

import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from math import ceil
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from include.fold.admission import instant_of
from include.lake.generations import read_generations
from include.lake.ops import read_ops, replaced_by
from include.lake.paths import Lake
from include.observe.stream_line import read_overview
from include.page.stream_figures import newest_keys
from include.registry import all_streams, stream_named
from include.stream.open_stream import open_stream
from include.stream.restate_plan import plan_restate
from include.stream.stream_status import stream_status
from tests.e2e.backfill_dialog import BackfillDialog
from tests.e2e.chromium import choose_theme, chromium, logged_in
from tests.e2e.make_run import Project, interrupt, read_until

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.xdist_group("make run"),
]
PLACES = re.compile(r"Airflow +(\S+) +user (\S+), password (\S+)")
STREAM = "device_signals"
REBUILT = "user_counts"
BY_DIALOG = "user_sessions"
# What the finding of late rows says to enter.
ENTER = re.compile(r"From (\S+ \S+), To (\S+ \S+) \(UTC\), Reprocess Behavior: (All Runs)")
RESTATED = 300_000.0  # milliseconds
HOUR = timedelta(hours=1)


class Served(NamedTuple):
    """A running Airflow, and its lake."""

    url: str
    user: str
    password: str
    lake: Lake


@pytest.fixture(scope="module")
def served(project: Project, first_run: str) -> Iterator[Served]:
    process: subprocess.Popen[str] = project.make_run()
    try:
        said = read_until(process, "until Ctrl-C")
        places = PLACES.search(said)
        assert places is not None, said
        yield Served(*places.groups(), project.lake)
    finally:
        if process.poll() is None:
            interrupt(process)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(served: Served, browser: Browser) -> Page:
    return logged_in(browser, served.url, served.user, served.password)


def frame(page: Page, path: str) -> FrameLocator:
    """The frame in which Airflow shows our page at `path`."""
    page.goto(path)
    inside = page.frame_locator("iframe")
    inside.locator("h1").wait_for()
    return inside


def test_the_menu_leads_to_all_streams_with_the_figures_of_the_lake(page, served):
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name="Streams").click()
    rows = page.frame_locator("iframe").locator("#streams tbody tr")
    expect(rows).to_have_count(len(all_streams()))
    for line in read_overview(served.lake, all_streams()).lines:
        row = rows.filter(has=page.get_by_role("link", name=line.stream, exact=True))
        expect(row).to_contain_text(f"{line.until:%Y-%m-%d %H:%M}")
        expect(row).to_contain_text(f"{line.rows['in']:,}")
        (bar,) = row.locator(".bar").all()
        assert bar.locator("i.late").count() == sum(day.status == "late" for day in line.days)


def test_the_pages_are_light_or_dark_as_airflow_is(page):
    brightness = {}
    for theme in ("Dark Mode", "Light Mode"):
        inside = frame(page, "/plugin/streams")
        choose_theme(page, theme)
        is_dark = theme == "Dark Mode"
        color = "rgb(13, 17, 23)" if is_dark else "rgb(255, 255, 255)"
        expect(inside.locator("body")).to_have_css("background-color", color)
        inside = frame(page, f"/dags/stream_{STREAM}/plugin/state")  # from the start, too
        expect(inside.locator("body")).to_have_css("background-color", color)
        brightness[theme] = color
    assert len(set(brightness.values())) == 2


def test_a_key_is_looked_up_and_its_rows_are_explained(page, served):
    keys = newest_keys(served.lake, STREAM)
    assert keys is not None
    key = keys.keys[0]["key"]
    inside = frame(page, f"/dags/stream_{STREAM}/plugin/state")
    inside.get_by_label("device_id").fill(key)
    inside.get_by_role("button", name="Look up").click()
    expect(inside.locator("h1")).to_have_text(f"device_id {key}")
    steps = inside.get_by_role("region", name="Why each row was emitted").locator("tbody tr")
    expect(steps.first).to_contain_text(f'"device_id":{key}')


def _wait_until_restated(page: Page, lake: Lake, stream: str) -> dict[str, Any]:
    """Reload its page until it lists the restatement, and return the row of that in `ops`."""
    inside = frame(page, f"/dags/stream_{stream}/plugin/state")
    for _ in range(int(RESTATED / 5_000)):
        if inside.get_by_role("region", name="Restatements and rebuilds").count():
            break
        page.wait_for_timeout(5_000)
        inside = frame(page, f"/dags/stream_{stream}/plugin/state")
    row: dict[str, Any]
    (row,) = replaced_by(lake, stream)
    shown = inside.get_by_role("region", name="Restatements and rebuilds").locator("tbody tr")
    expect(shown).to_contain_text(f"{row['rows_in']:,}")
    return row


@pytest.mark.turn(1)
def test_airflow_s_own_dialog_makes_the_backfill_that_the_finding_says_to_enter(page, served):
    """One interval of it: a day would be too many runs."""
    stream = stream_named(BY_DIALOG)
    found = {"subject": BY_DIALOG, "finding": "late_rows_not_restated"}
    said = ENTER.search(read_ops(served.lake, "findings", found).to_pylist()[-1]["action"])
    assert said is not None
    first, last = (datetime.fromisoformat(f"{text}Z") for text in said.groups()[:2])
    dialog = BackfillDialog(page, f"stream_{BY_DIALOG}")
    dialog.choose(said[3])
    dialog.fill(first, last)
    dialog.expect_to_say(f"{ceil((last - first) / HOUR)} runs will be triggered.")
    before = stream_status(served.lake, stream).table_status.wrong
    start = instant_of(before[0].from_us).replace(minute=0, second=0, microsecond=0)
    planned = plan_restate(open_stream(served.lake, stream), start, start + HOUR)
    assert planned.now != "right"
    dialog.fill(start, start)
    dialog.expect_to_say("1 run will be triggered.")
    dialog.run()
    done = _wait_until_restated(page, served.lake, BY_DIALOG)
    assert (done["start"], done["rows_in"]) == (start, planned.rows_to_read)
    again = plan_restate(open_stream(served.lake, stream), start, start + HOUR)
    assert again.now == "right"
    dialog = BackfillDialog(page, f"stream_{BY_DIALOG}")
    dialog.fill(start, start)
    dialog.expect_to_say(
        "No runs matching selected criteria."
    )  # by Missing Runs, as it is at first
    dialog.expect_nothing_to_run()


@pytest.mark.turn(2)
def test_a_deploy_is_approved_by_its_plan_as_a_table_in_airflow_s_own_pages(page, served):
    before = read_generations(served.lake, REBUILT).number
    page.goto("/dags/deploy")
    page.get_by_role("button", name="Trigger").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox").first.fill(REBUILT)
    page.keyboard.press("Enter")
    dialog.get_by_test_id("trigger-dag-submit").click()
    _read_until(page, "/required_actions", "Apply plan")
    page.get_by_role("link", name="Apply plan").first.click()
    expect(page.get_by_role("cell", name=REBUILT, exact=True)).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    for _ in range(int(RESTATED / 1_000)):
        found = read_generations(served.lake, REBUILT)
        if found.number > before:
            break
        page.wait_for_timeout(1_000)
    assert found.number == before + 1


def _read_until(page: Page, path: str, text: str) -> None:
    """Reload a page of Airflow's until it says this."""
    for _ in range(int(RESTATED / 5_000)):
        page.goto(path)
        page.wait_for_timeout(5_000)
        if page.get_by_text(text).count():
            return
    expect(page.get_by_text(text).first).to_be_visible()
