"""Whether a service answers: what the health checks of docker-compose.yaml run, every few seconds.

    python -m include.docker.check_health http://airflow-apiserver:8080/api/v2/monitor/health scheduler

Standard library only: `airflow jobs check` costs five seconds of CPU for the same answer.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from include.airflow.api import local_opener

TIMEOUT = 5.0


class UnhealthyError(Exception):
    """The service does not answer, or says that it is not well."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(description="Ask a service for its health.")
    parser.add_argument("url", help="an address that answers with a JSON object")
    parser.add_argument("component", nargs="?", help="the part of Airflow that must be healthy")
    args = parser.parse_args(argv)
    try:
        answer = ask(args.url)
        if args.component is not None:
            check_component(answer, args.component)
    except UnhealthyError as error:
        sys.stderr.write(f"unhealthy: {error}\n")
        return 1
    return 0


def ask(url: str) -> Any:
    """The JSON at `url`, asked for directly; UnhealthyError when there is none."""
    try:
        # Past any proxy: the cluster's own names mean nothing to it.
        with local_opener().open(url, timeout=TIMEOUT) as response:
            return json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        raise UnhealthyError(f"{url}: {error}") from error


def check_component(health: Any, component: str) -> None:
    """UnhealthyError unless Airflow's health report says that `component` is healthy."""
    part = health.get(component) if isinstance(health, dict) else None
    status = part.get("status") if isinstance(part, dict) else None
    if status != "healthy":
        raise UnhealthyError(f"{component} is {status or 'not there'}")


if __name__ == "__main__":
    sys.exit(main())
