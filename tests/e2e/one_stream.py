"""A copy of the project with one stream, for Airflows in which no task starts a JVM."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.airflow_runs import result_of
from tests.e2e.make_run import ROOT

STREAM = "user_counts"
# The job fails while the lake has a file `fail`.
SUBMIT = """#!/bin/sh
test ! -e "$LAKE/fail" || exit 1
exec {python} -m tests.e2e.without_jvm "$@"
"""
# The beginning of a script that plays scenes in an Airflow of the names `parts` and `api`.
PLAY = """
import json, os, signal, sys, time
from collections import Counter
from datetime import datetime, timedelta, UTC
from pathlib import Path

from include.airflow.environment import any_free_port
from include.airflow.local_airflow import airflow, are_healthy, start_background
from include.lake.paths import Lake

lake, result, LATEST = Lake(sys.argv[1]), {}, time.monotonic() + 1500

def wait_for(what, is_there):
    while not (found := is_there()):
        parts.check_alive()
        if time.monotonic() > LATEST:
            runs = api.call("GET", "/api/v2/dags/~/dagRuns", params={"limit": 100})["dag_runs"]
            sys.exit(f"no {what}: {result}, {[(run['dag_run_id'], run['state']) for run in runs]}")
        time.sleep(1.0)
    return found

def backfill(dag, first, last, **conf):
    dates = {"from_date": first, "to_date": last, "dag_id": dag, "max_active_runs": 1}
    how = {"reprocess_behavior": "completed", "run_backwards": False, "dag_run_conf": conf}
    api.call("POST", "/api/v2/backfills", json=dates | how)
"""


def project_of_one_stream(folder: Path, *streams: str) -> Path:
    """In `folder`, or with these streams; no data waits for it."""
    project = folder / "project"
    for name in ("include", "dags", "spark_jobs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, project / name, ignore=ignored)
    (project / ".jars").symlink_to(ROOT / ".jars")  # Dags name them when they are read
    for file in (project / "include" / "streams").iterdir():
        if file.stem not in ("__init__", "sources", "notify", *(streams or [STREAM])):
            file.unlink()
    return project


def project_without_jvm(
    folder: Path, *streams: str, changes: Mapping[str, tuple[str, str]]
) -> Path:
    """One whose jobs run without a JVM, a failed task is not repeated, and files have these changes."""
    project = project_of_one_stream(folder, *streams)
    (project / "tests").symlink_to(ROOT / "tests")
    (project / "dags" / "table_maintenance.py").unlink()  # due at once, in a new database
    submit = project / "include" / "bin" / "spark-submit-with-parent"
    submit.write_text(SUBMIT.format(python=sys.executable))
    for name, (before, after) in {
        **changes,
        "dags/spark_task.py": ("retries=2", "retries=0"),
    }.items():
        text = (project / name).read_text()
        assert text.count(before) == 1
        (project / name).write_text(text.replace(before, after))
    return project


def run_in(project: Path, script: str, *arguments: str) -> Any:
    """Run a script in the project, and return the JSON that it prints after RESULT."""
    return result_of("-c", script, *arguments, cwd=project)
