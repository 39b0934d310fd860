"""Real Dag runs for tests: an Airflow database of their own, and a process that runs a Dag in it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from include.lake.paths import Lake
from tests.dags import ROOT


def environment_of(home: Path, lake: Lake) -> dict[str, str]:
    """An Airflow in `home`. In the environment, so a process must start under it."""
    return os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "LAKE": lake.root,
        "PYTHONPATH": str(ROOT),
    }


def migrate_database(home: Path, lake: Lake) -> Path:
    """The database of a new Airflow in `home`."""
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, env=environment_of(home, lake), check=True, capture_output=True)
    return home / "airflow.db"


def run_script(script: str, arguments: Sequence[str], environment: dict[str, str]) -> Any:
    """Run a script, and return the JSON that it prints after RESULT."""
    # In a file: Airflow looks up the source of what a Dag calls.
    file = Path(environment["AIRFLOW_HOME"], "script.py")
    file.write_text(script)
    return result_of(str(file), *arguments, env=environment)


def result_of(*words: str, **settings: Any) -> Any:
    """Run Python, and return the JSON that it prints after RESULT."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, **settings
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, done.stdout[-5000:] + done.stderr[-5000:]
    return json.loads(lines[0].removeprefix("RESULT "))
