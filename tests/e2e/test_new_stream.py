"""A stream file put beside the others while Airflow runs: nothing is registered or restarted."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# In a copy of the project, with a lake where nothing has landed: no task starts a JVM.
ADD_STREAM = """
import json, os, sys, time
from datetime import UTC, datetime
from pathlib import Path

from include.airflow.environment import any_free_port
from include.airflow.first_runs import FirstRuns
from include.airflow.local_airflow import airflow
from include.airflow.parts import start_background
from include.airflow.progress import PlainLines
from include.lake.paths import made_lake
from include.spark.local_jobs import say

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
    runs = FirstRuns(api, started_at, PlainLines(say), look)
    assert runs.wait([runs.start(f"stream_{stream}")]) == []

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
    pools = {pool["name"]: pool["slots"] for pool in api.get("pools")["pools"]}
    print("RESULT", json.dumps(pools), flush=True)
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A copy with one stream, which no data waits for."""
    folder = tmp_path / "project"
    for name in ("include", "dags", "spark_jobs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    (folder / ".jars").symlink_to(ROOT / ".jars")  # Dags name them when they are read
    for file in (folder / "include" / "streams").iterdir():
        if file.name not in ("__init__.py", "sources.py", "user_counts.py"):
            file.unlink()
    return folder


@pytest.mark.airflow
@pytest.mark.e2e
def test_a_running_airflow_runs_a_new_stream_of_a_new_source(project, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ADD_STREAM, str(tmp_path / "lake")],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, done.stdout[-3000:] + done.stderr[-5000:]
    pools = json.loads(lines[0].removeprefix("RESULT "))
    for name in (
        "source_user_events",
        "stream_user_counts",
        "source_orders",
        "stream_order_counts",
    ):
        assert pools[name] == 1
