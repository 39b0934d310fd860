"""Airflow with the lake on S3, as a person starts it: runs, pages and a savepoint."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyarrow import fs

from include.airflow.local_airflow import AirflowApi
from include.fold.admission import micros_of
from include.lake.ops import last_run
from include.lake.paths import Lake
from include.registry import stream_named
from tests.e2e.make_run import free_port, interrupt, read_until
from tests.e2e.object_store import prepared
from tests.e2e.one_stream import STREAM, project_of_one_stream
from tests.landed_sql import oracle_rows, table_rows

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.spark,
    pytest.mark.xdist_group("s3"),
]
PLACES = re.compile(r"Airflow +(\S+) +user (\S+), password (\S+)")
SOURCE = stream_named(STREAM).source
START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=4)
SPAN = timedelta(hours=25)  # of sample data
# What `make run` does when set-up is done.
SERVE = """
import sys

from include.airflow.local_airflow import serve
from include.lake.paths import made_lake

sys.exit(serve(made_lake(sys.argv[1]), sys.argv[2], once=False))
"""


class Served(NamedTuple):
    """A running Airflow whose stream has run once, and a session of it."""

    project: Path
    api: AirflowApi
    lake: Lake

    def page(self, path: str) -> str:
        return self.api.client.get(path).raise_for_status().text

    def stateful(self, *words: str) -> str:
        return stateful(self.project, self.lake, *words)


def stateful(project: Path, lake: Lake, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "include.cli", *words, "--lake", lake.root],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def land(project: Path, lake: Lake, start: datetime, seed: int) -> None:
    given = {"source": SOURCE, "start": start.isoformat(), "seed": str(seed), "events": "5000"}
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    stateful(project, lake, "sample-data", *options)


@pytest.fixture
def served(s3_lake: Lake, tmp_path: Path) -> Iterator[Served]:
    prepared()
    project = project_of_one_stream(tmp_path)
    land(project, s3_lake, START, 1)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, s3_lake.root, str(free_port())],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said = read_until(process, "until Ctrl-C")
        places = PLACES.search(said)
        assert places is not None, said
        url, user, password = places.groups()
        api = AirflowApi(url)
        api.log_in(user, password)
        yield Served(project, api, s3_lake)
    finally:
        if process.poll() is None:
            interrupt(process)


def landed_here(lake: Lake, source: str, folder: Path) -> Lake:
    """A lake of this machine with what has landed there: DuckDB reads only that."""
    here = Lake(str(folder))
    landing = lake.path_in_filesystem(lake.landing(source))
    Path(here.landing(source)).mkdir(parents=True)
    fs.copy_files(landing, here.landing(source), source_filesystem=lake.filesystem)
    return here


def check_run(lake: Lake) -> datetime:
    run = last_run(lake, STREAM)
    assert run is not None
    assert (run["outcome"], run["rows_out"] > 0) == ("succeeded", True)
    until: datetime = run["until"]
    return until


def test_runs_pages_and_a_rebuild_are_as_on_a_disk(served, tmp_path):
    lake, stream = served.lake, stream_named(STREAM)
    check_run(lake)
    assert STREAM in served.page("/state/")
    rows = last_run(lake, STREAM)["rows_in"]
    assert f"{rows:,}" in served.page(f"/state/dags/stream_{STREAM}")
    assert f'stream="{STREAM}"' in served.page("/state/metrics")

    served.stateful("rebuild", STREAM, "--apply")  # late rows, and a savepoint at its end
    until = check_run(lake)
    landed = landed_here(lake, stream.source, tmp_path / "landed")
    assert table_rows(lake, STREAM) == oracle_rows(landed, stream, micros_of(until))

    land(served.project, lake, START + SPAN, 2)
    served.stateful("stream", STREAM)
    assert check_run(lake) > until
