"""The pages as an app within Airflow's; a person sees the streams whose Dags Airflow lets them read.

They change nothing. Each request reads the lake and the files of include/streams.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from airflow.api.common.airflow_health import get_airflow_health
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException as RoutingError  # FastAPI's own are such, too

from include.lake.delta_log import first_line
from include.lake.errors import LakeError, SettingsError, StatefulError
from include.lake.paths import open_lake
from include.observe.explain import KEY_DAYS, read_key
from include.observe.stream_line import READ_ERRORS, Overview, metrics_text, read_overview
from include.page.declared import declared
from include.page.render import key_html, message_html, overview_html, stream_html
from include.page.stream_figures import DAY, MOST_DAYS, read_stream
from include.settings import Stream, default_lake

DAG_PREFIX = "stream_"
# A page asks for nothing, and no other site may put it into a frame of its own.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Airflow's own words for these are "Not authenticated" and "Forbidden". No Dag is named in either.
REFUSALS = {
    401: "You are not logged in to Airflow, or not any more: log in, and open this page again.",
    403: "Airflow does not let you read this: ask whoever manages its users for the right to read "
    "the Dag, or log in as somebody who has it.",
}
Days = Annotated[int, Query(ge=1, le=MOST_DAYS)]
READS_DAG = Depends(requires_access_dag(method="GET"))


def state_app() -> FastAPI:
    """The app: 401 without a session, 403 without the right to read the Dag, 404 where it is of no stream."""
    app = FastAPI(title="State of the streams", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RoutingError)
    def refused(request: Request, error: RoutingError) -> Response:
        page = message_html(REFUSALS.get(error.status_code, str(error.detail)))
        headers = {**(error.headers or {}), **HEADERS}
        return HTMLResponse(page, status_code=error.status_code, headers=headers)

    @app.exception_handler(RequestValidationError)
    def unclear(request: Request, error: RequestValidationError) -> Response:
        messages = (f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return HTMLResponse(message_html("; ".join(messages)), status_code=422, headers=HEADERS)

    for kind in (StatefulError, *READ_ERRORS):
        app.add_exception_handler(kind, _unread)

    @app.get("/", dependencies=[READS_DAG])
    def streams(user: GetUserDep) -> Response:
        """All streams whose Dags the user may read."""
        page = overview_html(_overview(user), lambda name: f"dags/{DAG_PREFIX}{name}")
        return HTMLResponse(page, headers=HEADERS)

    @app.get("/metrics", dependencies=[READS_DAG])
    def metrics(user: GetUserDep) -> Response:
        """The figures of these streams in Prometheus' text format."""
        return PlainTextResponse(metrics_text(_overview(user)), headers=HEADERS)

    @app.get("/dags/{dag_id}", dependencies=[READS_DAG])
    def stream(dag_id: str, days: Days | None = None) -> Response:
        """The page of a Dag's stream, of its newest days."""
        time = None if days is None else days * DAY
        lake = open_lake(default_lake())
        figures = read_stream(lake, _stream_of(dag_id), now=datetime.now(UTC), time=time)
        return HTMLResponse(stream_html(figures, dag_id), headers=HEADERS)

    @app.get("/dags/{dag_id}/keys", dependencies=[READS_DAG])
    def key(dag_id: str, key: str, days: Days = KEY_DAYS) -> Response:
        """The page of a key of a Dag's stream."""
        lake = open_lake(default_lake())
        figures = read_key(lake, _stream_of(dag_id), key, now=datetime.now(UTC), days=days)
        return HTMLResponse(key_html(figures), headers=HEADERS)

    return app


def _unread(request: Request, error: Exception) -> Response:
    """The page for a refused request (400), or a lake that cannot be read (503)."""
    is_ours = isinstance(error, StatefulError)
    said = str(error) if is_ours else f"the lake cannot be read: {first_line(error)}"
    status = 400 if isinstance(error, SettingsError) else 503
    return HTMLResponse(message_html(said), status_code=status, headers=HEADERS)


def _overview(user: GetUserDep) -> Overview:
    known = declared()
    streams = _readable(user, known.streams)
    # What is wrong with a file is for who may read all of them.
    wrong = known.wrong if len(streams) == len(known.streams) else ()
    try:
        lake = open_lake(default_lake())
    except LakeError as error:
        return Overview(lake=default_lake(), now=datetime.now(UTC), reason=str(error))
    return replace(read_overview(lake, streams, wrong=wrong), unhealthy=_without_triggerer(streams))


def _without_triggerer(streams: Iterable[Stream]) -> str | None:
    """Say that streams are to start by arrival and no triggerer looks; None where all is well."""
    by_arrival = [stream.name for stream in streams if stream.on_arrival is not None]
    if not by_arrival or get_airflow_health()["triggerer"]["status"] == "healthy":
        return None
    return (
        f"no triggerer runs, so {', '.join(by_arrival)} start by schedule only: `airflow triggerer`"
    )


def _readable(user: GetUserDep, streams: Iterable[Stream]) -> list[Stream]:
    by_dag = {f"{DAG_PREFIX}{stream.name}": stream for stream in streams}
    allowed = get_auth_manager().filter_authorized_dag_ids(
        dag_ids=set(by_dag), user=user, method="GET"
    )
    return [stream for dag_id, stream in by_dag.items() if dag_id in allowed]


def _stream_of(dag_id: str) -> Stream:
    for stream in declared().streams:
        if dag_id == f"{DAG_PREFIX}{stream.name}":
            return stream
    raise HTTPException(404, f"{dag_id} is the Dag of no stream in include/streams")
