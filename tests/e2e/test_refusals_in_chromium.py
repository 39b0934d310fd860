"""What a person sees in a browser who may not read a Dag, or not make a backfill of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from include.airflow.api import AirflowApi
from include.airflow.environment import HOST
from include.lake.lease import wait_until
from include.lake.paths import Lake
from include.lake.stream_result import last_run
from tests.e2e.chromium import chromium, logged_in
from tests.e2e.make_run import ROOT, Project, free_port
from tests.e2e.refused_dags import HIDDEN, RefusedDags

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.xdist_group("make run"),
]
READABLE = "stream_device_signals"
READER, NOBODY = "reader", "nobody"
PASSWORDS = {READER: "of-reader", NOBODY: "of-nobody"}
STARTED = 300.0
HOUR = timedelta(hours=1)
MADE = "**/api/v2/backfills"
# Another server of the same Airflow and lake, in the folder of `make run`.
SERVE = """
import json, os, sys
from include.airflow.environment import airflow_environment
from include.lake.paths import Lake

environment = airflow_environment(os.environ, Lake(sys.argv[1]), int(sys.argv[2]), 0)
command = [sys.executable, "-m", "airflow", "api-server", "--apps", "core"]
os.execve(sys.executable, command, environment | json.loads(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def url(project: Project, first_run: str, tmp_path_factory) -> Iterator[str]:
    """Of an Airflow that has streams, with people who may not do everything."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "passwords.json").write_text(json.dumps(PASSWORDS))
    port = free_port()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVE,
                project.lake.root,
                str(port),
                json.dumps(people(project.folder, folder)),
            ],
            cwd=project.folder,
            env=os.environ | {"PYTHONPATH": str(project.folder)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        api = AirflowApi(f"http://{HOST}:{port}")
        wait_until(lambda: server.poll() is not None or api.health() is not None, STARTED)
        assert api.health() is not None, (folder / "log").read_text()[-5000:]
        yield api.url
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGINT)
        server.wait(60)


def people(project: Path, folder: Path) -> dict[str, str]:
    """A reader who may read Dags, but HIDDEN, and change none; and nobody, who has no role."""
    return {
        "AIRFLOW__CORE__AUTH_MANAGER": f"{RefusedDags.__module__}.{RefusedDags.__name__}",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{READER}:viewer,{NOBODY}:",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "PYTHONPATH": f"{project}{os.pathsep}{ROOT}",
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def reader(url: str, browser: Browser) -> Page:
    return logged_in(browser, url, READER, PASSWORDS[READER])


@pytest.fixture(scope="module")
def nobody(url: str, browser: Browser) -> Page:
    return logged_in(browser, url, NOBODY, PASSWORDS[NOBODY])


def of(dag_id: str) -> list[str]:
    page = f"/state/dags/{dag_id}"
    plan = f"{page}/backfill?from=2026-01-01&until=2026-01-02"
    return [page, f"{page}/keys?key=user-00001", f"{page}/backfill", plan]


def expect_refusal(page: Page, path: str) -> None:
    """Words of ours, and no figure of any stream."""
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == 403
    expect(page.get_by_role("alert")).to_contain_text("Airflow does not let you read this")
    assert page.locator("table, svg, form").count() == 0
    assert HIDDEN.removeprefix("stream_") not in page.content()


@pytest.mark.parametrize("path", of(HIDDEN))
def test_who_may_not_read_a_dag_is_told_so_and_nothing_of_its_stream(reader, path):
    expect_refusal(reader, path)


@pytest.mark.parametrize("path", ["/state/", *of(READABLE), *of("stream_none")])
def test_who_has_no_role_is_told_so_and_nothing_of_any_stream(nobody, path):
    expect_refusal(nobody, path)


def test_the_others_are_listed_without_it(reader):
    reader.goto("/state/")
    rows = reader.locator("#streams tbody tr")
    expect(rows.filter(has_text=READABLE.removeprefix("stream_"))).to_have_count(1)
    assert HIDDEN.removeprefix("stream_") not in reader.content()


def planned(page: Page, lake: Lake) -> Page:
    """The page of a backfill of the last hour, with its plan."""
    run = last_run(lake, READABLE.removeprefix("stream_"))
    assert run is not None
    until = run["until"].replace(minute=0, second=0, microsecond=0)
    page.goto(f"/state/dags/{READABLE}/backfill")
    page.get_by_label("From").fill((until - HOUR).isoformat())
    page.get_by_label("until").fill(until.isoformat())
    page.get_by_role("button", name="Plan").click()
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    return page


def test_who_may_not_make_a_backfill_sees_its_plan_and_makes_none(reader, project):
    made = f"/api/v2/backfills?dag_id={READABLE}"
    before = reader.request.get(made).json()
    planned(reader, project.lake)
    with reader.expect_response(MADE) as asked:
        reader.get_by_role("button", name="Make this backfill").click()
    assert asked.value.status == 403
    expect(reader.locator("#made")).to_contain_text("you may not make backfills of this Dag")
    assert reader.request.get(made).json() == before


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, '{"detail": "Invalid JWT"}', "you are not logged in any more. Load this page"),
        (502, "<h1>Bad Gateway</h1>", "HTTP 502, is not Airflow's: <h1>Bad Gateway</h1>"),
        (409, '{"detail": "There is another one"}', "has not made it: There is another one"),
    ],
)
def test_any_other_answer_is_said_in_words(reader, project, status, body, said):
    planned(reader, project.lake)
    reader.route(MADE, lambda route: route.fulfill(status=status, body=body))
    try:
        reader.get_by_role("button", name="Make this backfill").click()
        expect(reader.locator("#made")).to_contain_text(said)
    finally:
        reader.unroute(MADE)
