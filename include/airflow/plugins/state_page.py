"""A plugin of Airflow: the pages of all streams and of each, in its menu and on each stream's Dag.

The app is made at its first request: every process of Airflow loads this file, tasks too.
"""

from functools import cache
from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/state"  # below the path that Airflow is served under, as hrefs without a slash are


@cache
def _app() -> Any:
    from include.airflow.state_page import state_app

    return state_app()


async def state(scope: Any, receive: Any, send: Any) -> None:
    """The app, as ASGI has it."""
    await _app()(scope, receive, send)


class StatePage(AirflowPlugin):
    """What Airflow looks for in its plugins folder."""

    name = "state_page"
    fastapi_apps: list[Any] = [  # noqa: RUF012 (a list, as Airflow declares it)
        {"name": "State", "app": state, "url_prefix": PREFIX}
    ]
    external_views: list[Any] = [  # noqa: RUF012
        {
            "name": "Streams",
            "href": "state/",
            "destination": "nav",
            "category": "browse",
            "url_route": "streams",
        },
        {
            "name": "State",
            "href": "state/dags/{DAG_ID}",
            "destination": "dag",
            "url_route": "state",
        },
    ]
