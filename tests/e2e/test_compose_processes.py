"""The processes of docker-compose.yaml without a container engine: up, one Dag run on the cluster, down."""

from datetime import UTC, datetime, timedelta

import pytest

from include.airflow.local_airflow import AirflowApi, FirstRuns
from include.docker.compose_env import generated_environment
from include.fold.admission import micros_of
from include.lake.lease import wait_until
from include.lake.ops import last_run
from include.lake.paths import Lake
from include.registry import source_named, stream_named
from include.sample.sample_data import Options, generate
from tests.compose import ONE_SHOT, SERVICES
from tests.e2e.compose_processes import DEADLINE_S, LEFT_OUT, started_services
from tests.e2e.one_stream import STREAM, project_of_one_stream
from tests.landed_sql import oracle_rows, table_rows

START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=4)


@pytest.mark.airflow
@pytest.mark.e2e
@pytest.mark.spark
def test_a_stream_runs_on_what_compose_starts_and_nothing_is_left_running(tmp_path):
    project, lake = project_of_one_stream(tmp_path), Lake(f"{tmp_path}/lake")
    stream = stream_named(STREAM)
    (project / "dags" / "table_maintenance.py").unlink()  # due at once, in a new database
    generate(lake, source_named(stream.source), Options(start=START, events=3_000))
    variables = generated_environment()
    with started_services(tmp_path, project, variables) as (place, services):
        assert {each.name for each in services} == SERVICES.keys() - ONE_SHOT - LEFT_OUT
        api = AirflowApi(f"http://127.0.0.1:{place.ports['8080']}")
        api.log_in("admin", variables["AIRFLOW_ADMIN_PASSWORD"])

        def look() -> None:
            for service in services:
                service.check_alive()

        runs, dag = FirstRuns(api, START, look), f"stream_{STREAM}"
        assert runs.wait({dag: str(runs.start(dag))}) == []
        assert list((tmp_path / "work").glob("app-*/*")), "no worker has run an executor"

        until = last_run(lake, STREAM)["until"]
        assert table_rows(lake, STREAM) == oracle_rows(lake, stream, micros_of(until))

        for service in reversed(services):
            service.process.terminate()
            service.process.wait(DEADLINE_S)
        assert wait_until(lambda: not place.left(), DEADLINE_S), place.left()
