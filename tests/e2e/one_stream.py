"""A copy of the project with one stream, for Airflows in which no task starts a JVM."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.make_run import ROOT

STREAM = "user_counts"


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


def run_in(project: Path, script: str, *arguments: str) -> Any:
    """Run a script in the project, and return the JSON that it prints after RESULT."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, done.stdout[-3000:] + done.stderr[-5000:]
    return json.loads(lines[0].removeprefix("RESULT "))
