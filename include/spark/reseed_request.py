"""A reseed as a person asks for it in Airflow: the job's options, and what it would do.

The plan is made by a process of its own, `spark_jobs.state_admin`: it needs what the streams
compute, and Airflow's processes load none of that.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from include.settings import PROJECT, SettingsError
from include.spark.submit import job_environment

REFUSED = 2  # the exit code for what a person must give otherwise
HINT = "nothing was changed"  # the last line of a plan, for who plans by hand


def reseed_options(params: Mapping[str, Any]) -> list[str]:
    """The options of the plan and of the job; those that are not given are left out."""
    values = {f"--{name}": params[name] for name in ("buckets", "partitions", "until")}
    options = [part for name, value in values.items() if value for part in (name, str(value))]
    flags = {"--recompute": params["recompute"], "--from-state": params["from_state"]}
    return options + [name for name, is_set in flags.items() if is_set]


def read_plan(lake: str, params: Mapping[str, Any]) -> str:
    """What a reseed with these Params would do, for people.

    Raises SettingsError, in one line, for what cannot be; RuntimeError when planning failed.
    """
    command = [sys.executable, "-m", "spark_jobs.state_admin", "reseed"]
    command += ["--stream", params["stream"], "--lake", lake, *reseed_options(params)]
    environment = os.environ | job_environment()
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    said = done.stderr.strip()
    if done.returncode == REFUSED:
        raise SettingsError(said.rpartition("\n")[2].removeprefix("error: "))
    if done.returncode:
        raise RuntimeError(f"planning the reseed failed with exit code {done.returncode}:\n{said}")
    lines = done.stdout.strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith(HINT))
