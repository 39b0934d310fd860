"""The plugin's pages through Airflow's own app: who may read what, and what is read-only."""

import json
import shutil
from typing import Any

import pytest

from include.airflow.environment import PLUGINS
from include.page.overview import read_overview
from include.registry import all_streams, stream_named
from tests.airflow_runs import run_script
from tests.page.history import write_history

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


@pytest.fixture
def ask(airflow_environment: dict[str, str]) -> Any:
    environment = airflow_environment | {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "x:viewer",
    }

    def asked(*requests: tuple[str, str] | tuple[str, str, list[str]]) -> list[Any]:
        """The answers to (role, path), or to (role, "METHOD path", the Dags that it may read)."""
        wanted = []
        for role, request, *dags in requests:
            method, path = request.split(" ") if " " in request else ("GET", request)
            wanted.append([role, dags[0] if dags else [], method, path])
        answers: list[Any] = run_script(ASK, [json.dumps(wanted)], environment)
        return answers

    return asked


PAGES = ["/state/", "/state/metrics", "/state/dags/stream_user_counts"]


@pytest.mark.airflow
def test_nothing_is_served_without_a_session_or_the_right_to_read(ask, lake):
    write_history(lake, [stream_named("user_counts")], 2)
    some = "/state/dags/stream_device_signals"
    answers = ask(
        *(("nobody", page) for page in PAGES),
        *(("", page) for page in PAGES),
        *(("forged", page) for page in PAGES),
        ("viewer", some, ["stream_user_counts"]),
        # Who may not read it hears the same whether there is such a stream.
        ("nobody", "/state/dags/stream_none"),
        ("", "/state/dags/stream_none"),
    )
    assert [status for status, *_ in answers] == [401] * 3 + [403] * 3 + [403] * 3 + [403, 401, 403]
    for _, _, text in answers:
        assert "1,0" not in text
        assert "stream_user_counts" not in text


@pytest.mark.airflow
def test_a_viewer_reads_the_pages_and_changes_nothing(ask, lake):
    write_history(lake, [stream_named("user_counts")], 2)
    overview, metrics, page, unknown, other, odd, *writes = ask(
        *(("viewer", path) for path in PAGES),
        ("viewer", "/state/dags/stream_none"),
        ("viewer", "/state/dags/state_admin"),
        ("viewer", "/state/dags/stream_user_counts?days=0"),
        *(("admin", f"{method} {path}") for method in ("POST", "PUT", "DELETE") for path in PAGES),
    )
    assert [answer[0] for answer in (overview, metrics, page)] == [200] * 3
    assert [answer[0] for answer in (unknown, other, odd)] == [404, 404, 422]
    assert "state_admin is the Dag of no stream" in other[2]
    assert {status for status, *_ in writes} == {405}
    for stream in all_streams():
        assert f'href="dags/stream_{stream.name}"' in overview[2]
    rows = next(x for x in read_overview(lake, all_streams()).lines if x.stream == "user_counts")
    assert f'kind="in"}} {float(rows.rows_in)}' in metrics[2]
    assert '<a href="../">All streams</a>' in page[2]
    for _, headers, _ in (overview, metrics, page, unknown):
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


@pytest.mark.airflow
def test_a_person_sees_the_streams_whose_dags_they_may_read(ask, lake):
    some = ["stream_user_counts"]
    (overview, metrics, page) = ask(
        ("viewer", "/state/", some),
        ("viewer", "/state/metrics", some),
        ("viewer", "/state/dags/stream_user_counts", some),
    )
    assert [answer[0] for answer in (overview, metrics, page)] == [200] * 3
    for answer in (overview, metrics):
        assert "user_counts" in answer[2]
        assert "device_signals" not in answer[2]


@pytest.mark.airflow
def test_a_lake_that_is_not_there_is_said(ask, lake):
    shutil.rmtree(lake.root)
    overview, page, metrics = ask(
        ("viewer", "/state/"),
        ("viewer", "/state/dags/stream_user_counts"),
        ("viewer", "/state/metrics"),
    )
    assert (overview[0], page[0], metrics[0]) == (200, 503, 200)
    assert "no lake at" in overview[2]
    assert "no lake at" in page[2]
    assert metrics[2].endswith("stateful_lake_up 0.0\n")
