"""What a container engine would provide, on this machine: ports, folders and host names.

These are all the differences between docker-compose.yaml and its rehearsal:
- `service:port` is a free port of this machine, and so are the ports that a service listens on,
  in its own command, environment and health check;
- a service's name that is all of an argument of a command, and the address of all interfaces,
  are the loopback address;
- folders of the image and of volumes are folders of this machine.
"""

import itertools
import random
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.rehearsal.compose_file import HealthCheck, Service
from tests.rehearsal.interpolation import ComposeError

HOST = "127.0.0.1"
ALL_INTERFACES = "0.0.0.0"
# Before and after a port, name or path that stands for itself: no part of a longer one.
BEFORE, AFTER = r"(?<![\w.\-])", r"(?![\w\-]|\.\w)"

PORTS = range(20_000, 32_000)

Port = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where on this machine the containers' ports and folders are."""

    ports: Mapping[Port, int]
    image_folders: Mapping[str, Path]
    volumes: Path  # a folder with one for each named volume
    project: Path  # what bound paths are relative to

    def folders(self, service: Service) -> dict[str, Path]:
        """This machine's folder for each of the service's that has one."""
        return {**self.image_folders} | {
            volume.target: self.project / volume.source
            if volume.is_bound
            else self.volumes / volume.source
            for volume in service.volumes
        }


def ports_of(services: Iterable[Service]) -> dict[Port, int]:
    """The machine's port for each that a service listens on: the published one, or a free one."""
    listening = {(service.name, port): service for service in services for port in service.ports}
    free = iter(free_ports(len(listening)))
    return {
        (name, port): service.published.get(port) or next(free)
        for (name, port), service in listening.items()
    }


def free_ports(count: int) -> list[int]:
    """So many different ports that nothing uses.

    Below those that the kernel gives to outgoing calls: one of these could take a port while
    its service is stopped.
    """
    candidates = random.sample(PORTS, len(PORTS))
    return list(itertools.islice(filter(_is_free, candidates), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def translate(service: Service, names: Iterable[str], places: Places) -> Service:
    """The service with its words translated; `names` are those of all services."""
    words = _Words(service, frozenset(names), places)
    return replace(
        service,
        command=words.translated_command(service.command),
        entrypoint=words.translated_command(service.entrypoint),
        environment={name: words.translated(value) for name, value in service.environment.items()},
        working_dir=service.working_dir and words.translated(service.working_dir),
        health=service.health and _translated_check(service.health, words),
    )


def _translated_check(check: HealthCheck, words: "_Words") -> HealthCheck:
    return replace(check, command=words.translated_command(check.command))


class _Words:
    """One pass over each word, so that nothing is translated twice."""

    def __init__(self, service: Service, names: frozenset[str], places: Places) -> None:
        self._service = service
        self._names = names
        self._ports = places.ports
        self._folders = places.folders(service)
        own = [rf"{BEFORE}(?P<own>{'|'.join(map(str, service.ports))}){AFTER}"]
        self._pattern = re.compile(
            "|".join(
                [
                    rf"{BEFORE}(?P<host>{_any_of(names)}):(?P<port>\d+)\b",
                    # After the two slashes of file:// a path begins, after one it goes on.
                    rf"{BEFORE}(?<![^/]/)(?P<path>{_any_of(self._folders)})(?![\w.\-])",
                    rf"{BEFORE}(?P<all>{re.escape(ALL_INTERFACES)}){AFTER}",
                    *(own if service.ports else ()),
                ]
            )
        )

    def translated_command(self, command: Sequence[str]) -> tuple[str, ...]:
        # A service's name alone is a host only here, and not as the program: in the environment
        # it may as well be the name of a user or a database.
        return tuple(
            HOST if place and word in self._names else self.translated(word)
            for place, word in enumerate(command)
        )

    def translated(self, word: str) -> str:
        return self._pattern.sub(self._replacement, word)

    def _replacement(self, found: re.Match[str]) -> str:
        if found["host"]:
            return f"{HOST}:{self._port(found['host'], int(found['port']))}"
        if found["path"]:
            return str(self._folders[found["path"]])
        if found["all"]:
            return HOST
        return str(self._ports[self._service.name, int(found["own"])])

    def _port(self, host: str, port: int) -> int:
        try:
            return self._ports[host, port]
        except KeyError:
            name = self._service.name
            raise ComposeError(f"{name} calls {host}:{port}, which is not in its expose") from None


def _any_of(words: Iterable[str]) -> str:
    """The longest first: of `/a` and `/a/b` the nearer one."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"
