"""The pages as an app within Airflow's: what a person may read is what Airflow says of its Dags.

Read-only. Each request reads the lake, and the files of include/streams as they are by then.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

from include.lake.paths import Lake, LakeError, open_lake
from include.page.declared import Declared, declared
from include.page.metrics import metrics_text
from include.page.overview import WINDOW_DAYS, Overview, read_overview, unreadable
from include.page.render import message_html, overview_html, stream_html
from include.page.stream_figures import read_stream
from include.settings import SettingsError, Stream, default_lake

DAG_PREFIX = "stream_"
# A page asks for nothing, and no other site may put it into a frame of its own.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
READS_DAG = Depends(requires_access_dag(method="GET"))


def state_app() -> FastAPI:
    """The app: 401 without a session, 403 for who may not read the Dag, 404 for one of no stream."""
    app = FastAPI(title="State of the streams", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        page = message_html(str(error.detail))
        return HTMLResponse(page, status_code=error.status_code, headers=HEADERS)

    @app.get("/", dependencies=[READS_DAG])
    def streams(user: GetUserDep) -> Response:
        """All streams whose Dags the user may read."""
        page = overview_html(_overview(user), lambda name: f"dags/{DAG_PREFIX}{name}")
        return HTMLResponse(page, headers=HEADERS)

    @app.get("/metrics", dependencies=[READS_DAG])
    def metrics(user: GetUserDep) -> Response:
        """Their figures in Prometheus' text format."""
        return PlainTextResponse(metrics_text(_overview(user)), headers=HEADERS)

    @app.get("/dags/{dag_id}", dependencies=[READS_DAG])
    def stream(dag_id: str, days: Annotated[int, Query(ge=1, le=3_650)] = WINDOW_DAYS) -> Response:
        """The stream of a Dag."""
        found = _stream_of(dag_id, _declared())
        try:
            lake = open_lake(default_lake())
        except LakeError as error:
            raise HTTPException(503, str(error)) from error
        figures = read_stream(lake, found, datetime.now(UTC), timedelta(days=days))
        return HTMLResponse(stream_html(figures, back="../"), headers=HEADERS)

    return app


def _declared() -> Declared:
    try:
        return declared()
    except SettingsError as error:
        raise HTTPException(503, str(error)) from error


def _overview(user: GetUserDep) -> Overview:
    known = _declared()
    streams = _readable(user, known.streams)
    # What is wrong with a file is for who may read all of them.
    wrong = known.wrong if len(streams) == len(known.streams) else ()
    try:
        lake = open_lake(default_lake())
    except LakeError as error:
        return unreadable(Lake(default_lake()), str(error))
    return replace(read_overview(lake, streams), wrong=wrong)


def _readable(user: GetUserDep, streams: Iterable[Stream]) -> list[Stream]:
    by_dag = {f"{DAG_PREFIX}{stream.name}": stream for stream in streams}
    allowed = get_auth_manager().filter_authorized_dag_ids(
        dag_ids=set(by_dag), user=user, method="GET"
    )
    return [stream for dag_id, stream in by_dag.items() if dag_id in allowed]


def _stream_of(dag_id: str, known: Declared) -> Stream:
    for stream in known.streams:
        if dag_id == f"{DAG_PREFIX}{stream.name}":
            return stream
    raise HTTPException(404, f"{dag_id} is the Dag of no stream in include/streams")
