"""Health check of a service of docker-compose.yaml.

`curl --fail` would not do: Airflow answers 200 whatever has died, and says which in JSON. `airflow jobs
check` costs five seconds of CPU for the same answer.
"""

import json
import sys
from http.client import HTTPException
from urllib.request import ProxyHandler, build_opener

TIMEOUT = 5.0


def main(url: str, component: str | None = None) -> int:
    """Return 0 when `url` answers with JSON in which `component`, if given, is healthy."""
    try:
        # Past any proxy: the cluster's own names mean nothing to it.
        with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT) as response:
            answer = json.load(response)
        status = answer[component]["status"] if component else "healthy"
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        status = repr(error)
    if status == "healthy":
        return 0
    sys.stderr.write(f"unhealthy: {url}: {status}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
