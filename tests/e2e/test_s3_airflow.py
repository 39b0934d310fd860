"""Airflow with the lake on S3, as a person starts it: runs, pages, a savepoint and a recovery drill."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request

import pytest
from pyarrow import fs

from include.airflow.api import AirflowApi, local_opener
from include.care.last_drill import last_drill
from include.fold.instants import micros_of
from include.lake.paths import Lake
from include.lake.stream_result import last_run
from include.registry import all_streams, stream_named
from tests.e2e.make_run import Project, interrupt, read_until
from tests.landed_sql import oracle_rows, table_rows

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.spark,
    pytest.mark.xdist_group("s3"),
]
PLACES = re.compile(r"Airflow +(\S+) +user (\S+), password (\S+)")
DRILLED, RESEEDED = "device_signals", "user_counts"


class Served(NamedTuple):
    """A running Airflow whose streams have run once, and a session of it."""

    project: Project
    api: AirflowApi
    lake: Lake

    def page(self, path: str) -> str:
        asked = Request(  # noqa: S310 (our own address)
            f"{self.api.url}{path}", headers={"Authorization": f"Bearer {self.api.token}"}
        )
        with local_opener().open(asked, timeout=60) as answer:
            return str(answer.read().decode())

    def stateful(self, *words: str) -> str:
        done = subprocess.run(
            ["./stateful", *words, "--lake", self.lake.root],
            cwd=self.project.folder,
            env=os.environ | {"HOME": str(self.project.home), "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def served(s3_lake: Lake, tmp_path: Path) -> Iterator[Served]:
    project = Project(tmp_path)
    process = project.make_run(f"LAKE={s3_lake.root}")
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


def test_runs_pages_a_reseed_and_a_drill_are_as_on_a_disk(served, tmp_path):
    lake, counts = served.lake, stream_named(RESEEDED)
    for stream in all_streams():
        run = last_run(lake, stream.name)
        assert run is not None
        assert (run["outcome"], run["rows_out"] > 0) == ("succeeded", True)
    assert all(stream.name in served.page("/state/") for stream in all_streams())
    run = last_run(lake, DRILLED)
    assert run is not None
    assert f"{run['rows_in']:,}" in served.page(f"/state/dags/stream_{DRILLED}")
    assert f'stream="{DRILLED}"' in served.page("/state/metrics")

    served.stateful("reseed", RESEEDED, "--apply")
    run = last_run(lake, RESEEDED)
    assert run is not None
    landed = landed_here(lake, counts.source, tmp_path / "landed")
    assert table_rows(lake, RESEEDED) == oracle_rows(landed, counts, micros_of(run["until"]))

    assert "all equal" in served.stateful("drill", DRILLED)
    drill = last_drill(lake, DRILLED)
    assert drill is not None
    assert drill["is_equal"] is True
