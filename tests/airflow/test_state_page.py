"""The plugin's pages through Airflow's own app: who may read what, and what is read-only."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from include.airflow.environment import PLUGINS
from include.lake.paths import Lake
from include.registry import stream_named
from tests.airflow_runs import environment_of, run_script
from tests.page.history import write_history

pytestmark = pytest.mark.airflow

# Each request as somebody: their status, type and text. A user reads the Dags that are named.
ASK = """
import json, sys
from unittest.mock import patch

from airflow.api_fastapi.app import cached_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from starlette.testclient import TestClient

ours = SimpleAuthManager.is_authorized_dag

def only_some(self, *, method, user, access_entity=None, details=None):
    only = [team for team in user.teams or [] if team.startswith("stream_")]
    if only and details is not None and details.id is not None and details.id not in only:
        return False
    user = SimpleAuthManagerUser(username=user.username, role=user.role)
    return ours(self, method=method, user=user, access_entity=access_entity, details=details)

answers = []
with patch.object(SimpleAuthManager, "is_authorized_dag", only_some):
    client = TestClient(cached_app(), raise_server_exceptions=False)
    for role, dags, method, path in json.loads(sys.argv[1]):
        client.cookies.clear()
        if role != "nobody":
            user = SimpleAuthManagerUser(username="x", role=role or None, teams=dags)
            client.cookies.set("_token", get_auth_manager().generate_jwt(user))
        if role == "forged":
            client.cookies.set("_token", "a.b.c")
        answer = client.request(method, path)
        answers.append([answer.status_code, dict(answer.headers), answer.text])
print("RESULT", json.dumps(answers))
"""


Answer = tuple[int, dict[str, str], str]
Request = tuple[str, str, list[str]]  # a role, "METHOD path", the Dags that it may read


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    write_history(lake, [stream_named("user_counts")], 2)
    return lake


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Any:
    def asked(lake: Lake, requests: list[Request]) -> dict[str, Answer]:
        home = tmp_path_factory.mktemp("airflow")
        shutil.copy(migrated_database, home)
        environment = environment_of(home, lake) | {
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "x:viewer",
        }
        wanted = [(role, dags, *request.split(" ")) for role, request, dags in requests]
        answers = run_script(ASK, [json.dumps(wanted)], environment)
        keys = (" ".join((role, request, *dags)) for role, request, dags in requests)
        return dict(zip(keys, answers, strict=True))

    return asked


PAGES = ["/state/", "/state/metrics", "/state/dags/stream_user_counts"]
KEY = f"{PAGES[2]}/keys?key=user-00001"
SOME = "stream_user_counts"
EACH = [*PAGES, KEY]
UNREADABLE, UNKNOWN = "/state/dags/stream_device_signals", "/state/dags/stream_none"
NOWHERE = ["/state/none", "/state/dags/", f"{PAGES[2]}/none"]
HIDDEN = [UNREADABLE, f"{UNREADABLE}/keys?key=1"]
REQUESTS: list[Request] = [
    *((role, f"GET {page}", []) for role in ("nobody", "", "forged", "viewer") for page in EACH),
    *((role, f"GET {UNKNOWN}", []) for role in ("nobody", "", "viewer")),
    *(("viewer", f"GET {page}", [SOME]) for page in (*PAGES, *HIDDEN)),
    *(("admin", f"{how} {page}", []) for how in ("POST", "PUT", "DELETE") for page in EACH),
    ("viewer", "GET /state/dags/stream_device_signals/keys?key=many", []),
    ("viewer", "GET /state/dags/deploy", []),
    ("viewer", "GET /state/dags/stream_user_counts?days=0", []),
    *(("viewer", f"GET {page}?days=2", [SOME]) for page in (UNREADABLE, UNKNOWN)),
    *(("viewer", f"GET {page}", []) for page in NOWHERE),
    ("admin", "GET /api/v2/plugins", []),
]


@pytest.fixture(scope="module")
def answers(ask, lake):
    return ask(lake, REQUESTS)


@pytest.mark.parametrize(("role", "status"), [("nobody", 401), ("", 403), ("forged", 403)])
@pytest.mark.parametrize("page", EACH)
def test_nothing_is_served_without_a_session_and_the_right_to_read(answers, role, status, page):
    found, _, text = answers[f"{role} GET {page}"]
    assert found == status
    assert "user_counts" not in text


def test_who_may_not_read_a_dag_is_not_told_whether_it_is_there(answers):
    assert {answers[f"viewer GET {page} {SOME}"][0] for page in HIDDEN} == {403}
    statuses = [answers[f"{role} GET {UNKNOWN}"][0] for role in ("nobody", "", "viewer")]
    assert statuses == [401, 403, 404]


@pytest.mark.parametrize("page", PAGES)
def test_a_viewer_reads_pages_that_no_cache_and_no_other_site_keeps(answers, page):
    status, headers, _ = answers[f"viewer GET {page}"]
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_a_person_sees_the_streams_whose_dags_they_may_read(answers):
    for page in PAGES:
        status, _, text = answers[f"viewer GET {page} {SOME}"]
        assert (status, "user_counts" in text, "device_signals" in text) == (200, True, False)


def test_a_dag_of_no_stream_is_not_found_and_odd_days_are_refused(answers):
    assert answers["viewer GET /state/dags/deploy"][0] == 404
    status, headers, text = answers["viewer GET /state/dags/stream_user_counts?days=0"]
    assert (status, "days" in text) == (422, True)
    assert "default-src 'none'" in headers["content-security-policy"]


def test_a_time_is_shown_of_what_one_may_read_alone(answers):
    hidden = [answers[f"viewer GET {page}?days=2 {SOME}"] for page in (UNREADABLE, UNKNOWN)]
    assert [status for status, *_ in hidden] == [403, 403]


@pytest.mark.parametrize("page", NOWHERE)
def test_an_address_of_no_page_is_answered_by_a_page_of_ours(answers, page):
    status, headers, _ = answers[f"viewer GET {page}"]
    assert status == 404
    assert "default-src 'none'" in headers["content-security-policy"]


def test_the_pages_are_read_only(answers):
    writes = {key: found[:2] for key, found in answers.items() if key.startswith("admin ")}
    del writes["admin GET /api/v2/plugins"]
    assert {(status, headers["allow"]) for status, headers in writes.values()} == {(405, "GET")}
    assert len(writes) == 12


def test_what_cannot_be_looked_up_is_said(answers):
    status, _, text = answers["viewer GET /state/dags/stream_device_signals/keys?key=many"]
    assert (status, "device_signals" in text) == (400, True)


def test_airflow_knows_the_entry_of_its_menu_and_the_tab_of_its_dags(answers):
    # Without a slash before them: Airflow may be served under a path, which its <base> has.
    plugins = json.loads(answers["admin GET /api/v2/plugins"][2])["plugins"]
    (ours,) = (plugin for plugin in plugins if plugin["name"] == "stateful_lake")
    assert {view["destination"]: view["href"] for view in ours["external_views"]} == {
        "nav": "state/",
        "dag": "state/dags/{DAG_ID}",
    }
