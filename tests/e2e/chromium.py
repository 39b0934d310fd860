"""A headless Chromium that is logged in to Airflow: Debian's, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.debian import found_or_installed

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE = {"width": 1400, "height": 900}
SLOW = 60_000.0  # milliseconds: Airflow's first page, and its answers, on a loaded machine


def chromium_path() -> str:
    """Chromium's program; Debian's package is installed when root has none.

    Raises RuntimeError with what to do when there is none and this is not root.
    """
    found = found_or_installed(_find, "chromium")
    if found is None:
        raise RuntimeError("no Chromium here: install it (Debian: apt-get install chromium)")
    return found


def _find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, until the body ends."""
    expect.set_options(timeout=SLOW)
    with sync_playwright() as playwright:
        # A container has no user namespace to make a sandbox of; only our own pages are opened.
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def logged_in(browser: Browser, url: str, user: str, password: str) -> Page:
    """A page of Airflow at `url`, as a person sees it who has just logged in."""
    # Airflow's pages have the browser's time zone at first: not that of whoever tests.
    page = browser.new_context(viewport=WIDE, base_url=url, timezone_id="UTC").new_page()  # type: ignore[arg-type]
    page.set_default_timeout(SLOW)
    page.goto("/")
    page.locator("input[name=username]").fill(user)
    page.locator("input[type=password]").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="User").wait_for()
    return page


def choose_theme(page: Page, theme: str) -> None:
    """By Airflow's own switch: Light Mode or Dark Mode."""
    page.get_by_role("button", name="User").click()
    page.get_by_role("menuitem", name="Appearance").hover()
    page.get_by_role("menuitemradio", name=theme).click()
    page.keyboard.press("Escape")
