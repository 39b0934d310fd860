"""Retake the pictures of the State page in docs, from the Airflow that `make run` serves meanwhile.

make screenshots PORT=8080
"""

import os
from pathlib import Path

from playwright.sync_api import Page

from include.airflow.environment import HOST, USER, admin_password
from tests.e2e.chromium import chromium, logged_in

DOCS = Path(__file__).resolve().parents[2] / "docs"
STREAM = "device_signals"
FEW = {"width": 1200, "height": 640}  # small pictures


def main() -> None:
    url = f"http://{HOST}:{os.environ.get('PORT', '8080')}"
    with chromium() as browser:
        page = logged_in(browser, url, USER, admin_password())
        page.set_viewport_size(FEW)  # type: ignore[arg-type]
        take(page, f"/dags/stream_{STREAM}/plugin/state", "page_state")


def take(page: Page, path: str, name: str) -> None:
    """A picture of what Airflow shows at `path`, in docs."""
    page.goto(path)
    page.frame_locator("iframe").locator("h1").wait_for()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=DOCS / f"{name}.png")


if __name__ == "__main__":
    main()
