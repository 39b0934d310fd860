"""A stream file put beside the others while Airflow runs: nothing is registered or restarted."""

import pytest

from tests.e2e.one_stream import project_of_one_stream, run_in

# In a copy of the project, with a lake where nothing has landed: no task starts a JVM.
ADD_STREAM = """
import json, os, sys, time
from datetime import UTC, datetime
from pathlib import Path

from include.airflow.environment import any_free_port
from include.airflow.local_airflow import FirstRuns
from include.airflow.local_airflow import airflow
from include.airflow.local_airflow import start_background
from include.lake.paths import made_lake

DEADLINE = time.monotonic() + 600
SOURCE = '''
SOURCES += (
    Source(
        name="orders",
        time_field="ordered_at",
        comment="What users order",
        fields=(Field(name="user_id", type="string", comment="Who orders"),),
    ),
)
'''

def look():
    parts.check_alive()
    assert time.monotonic() < DEADLINE, f"{waited_for} does not end"

def run(stream):
    runs, dag = FirstRuns(api, started_at, look), f"stream_{stream}"
    assert runs.wait({dag: runs.start(dag)}) == []

with airflow(made_lake(sys.argv[1]), any_free_port()) as (parts, api):
    started_at = datetime.now(UTC)
    start_background(parts, api)
    waited_for = "the stream that was there"
    run("user_counts")
    streams = Path("include", "streams")
    with (streams / "sources.py").open("a") as sources:
        sources.write(SOURCE)
    text = (streams / "user_counts.py").read_text()
    (streams / "order_counts.py").write_text(text.replace('"user_events"', '"orders"'))
    waited_for = "the new stream"
    run("order_counts")
    pools = {pool["name"]: pool["slots"] for pool in api.call("GET", "/api/v2/pools")["pools"]}
    print("RESULT", json.dumps(pools), flush=True)
"""


@pytest.mark.airflow
@pytest.mark.e2e
@pytest.mark.turn(2)
def test_a_running_airflow_runs_a_new_stream_of_a_new_source(tmp_path):
    project = project_of_one_stream(tmp_path)
    pools = run_in(project, ADD_STREAM, str(tmp_path / "lake"))
    for name in (
        "source_user_events",
        "stream_user_counts",
        "source_orders",
        "stream_order_counts",
    ):
        assert pools[name] == 1
