"""What docker-compose.yaml says and the rehearsal does not do, with the reason; and what it does.

A key of the file that is in neither table is an error: compose and rehearsal cannot drift.
"""

from collections.abc import Iterator, Mapping
from typing import Any

# Keys of a service; of a mapping within it, with a dot.
OBEYED = frozenset(
    {
        "command",
        "depends_on.*.condition",
        "entrypoint",
        "env_file",
        "environment",
        "expose",
        "healthcheck.disable",
        "healthcheck.interval",
        "healthcheck.retries",
        "healthcheck.start_interval",
        "healthcheck.start_period",
        "healthcheck.test",
        "healthcheck.timeout",
        "init",
        "ports",
        "restart",
        "stop_grace_period",
        "stop_signal",
        "volumes",
        "working_dir",
    }
)
NOT_REHEARSED: Mapping[str, str] = {
    "build": "no image is built: the project's folder and its .venv stand for it",
    "cap_add": "capabilities of a container: processes here have those of who started them",
    "cap_drop": "capabilities of a container: processes here have those of who started them",
    "cpus": "needs the engine's control groups: all services share this machine's cores",
    "image": "no image is pulled: PostgreSQL is this machine's, of another version perhaps",
    "logging": "nothing rotates the log files of one rehearsal",
    "mem_limit": "needs the engine's control groups: the peak of each service is reported instead",
    "memswap_limit": "needs the engine's control groups",
    "networks": "all services listen on loopback: nothing is isolated, no name is resolved",
    "pids_limit": "needs the engine's control groups",
    "pull_policy": "no image is pulled or built",
    "read_only": "needs the engine's file systems",
    "security_opt": "needs the engine's sandbox",
    "shm_size": "needs the engine's file systems",
    "tmpfs": "needs the engine's file systems",
    "ulimits": "needs the engine",
    "user": "processes run as who started the rehearsal (PostgreSQL as its own user, under root)",
}
# Not in the file, and yet another than with an engine.
ALSO_NOT_REHEARSED: Mapping[str, str] = {
    "health checks of a healthy service": "run until it is healthy, and after each start, only",
    "the Dockerfile's packages, files and user": "only its ENV and WORKDIR are taken over",
    "several machines": "one machine's network, clock and disk: no partition, no slow shared lake",
}


def unknown_keys(services: Mapping[str, Any]) -> list[str]:
    """`service: key` for each key of the described services that is in neither table."""
    return sorted(
        f"{name}: {key}"
        for name, service in services.items()
        for key in _keys(service)
        if key not in OBEYED and key not in NOT_REHEARSED
    )


def not_rehearsed_keys(services: Mapping[str, Any]) -> list[str]:
    """Those of the table that the described services use."""
    return sorted(
        {key for service in services.values() for key in _keys(service)} & NOT_REHEARSED.keys()
    )


def _keys(service: Mapping[str, Any]) -> Iterator[str]:
    for key, value in service.items():
        if key == "healthcheck":
            yield from (f"healthcheck.{option}" for option in value)
        elif key == "depends_on" and isinstance(value, dict):
            for options in value.values():
                yield from (f"depends_on.*.{option}" for option in options)
        elif key == "depends_on":
            yield "depends_on.*.condition"
        else:
            yield key
