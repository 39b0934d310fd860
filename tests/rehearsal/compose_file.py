"""docker-compose.yaml as `docker compose` reads it: services, with all that is common merged in.

Only what the project's file uses, in the forms that it uses; anything else is a ComposeError and
not a guess. YAML itself merges the anchors (`<<: *common`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from tests.rehearsal.interpolation import ComposeError, interpolate

Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]
DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
RESTART = re.compile(r"no|always|unless-stopped|on-failure(?::\d+)?")
PUBLISHED = re.compile(r"127\.0\.0\.1:(\d+):(\d+)")
ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """Seconds throughout; the defaults are the engine's."""

    command: tuple[str, ...]
    interval: float = 30.0
    timeout: float = 30.0
    retries: int = 3
    start_period: float = 0.0
    start_interval: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder of the container: `source` is a volume's name, or a path when it is bound."""

    source: str
    target: str

    @property
    def is_bound(self) -> bool:
        return self.source.startswith((".", "/", "~"))


@dataclass(frozen=True, kw_only=True)
class Service:
    """One service, interpolated and merged, in the units and defaults of the specification."""

    name: str
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    image: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    volumes: tuple[Volume, ...] = ()
    ports: tuple[int, ...] = ()  # it listens on, inside: `expose` and `ports`
    published: Mapping[int, int] = field(default_factory=dict)  # of these, to ports of the machine
    depends_on: Mapping[str, Condition] = field(default_factory=dict)
    health: HealthCheck | None = None
    restart: str = "no"
    stop_signal: str | None = None  # None: the image's
    stop_grace: float = 10.0


def load_compose(path: Path) -> dict[str, Any]:
    """The file with its anchors merged, and nothing else done to it."""
    try:
        loaded = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ComposeError(f"{path} is no YAML: {error}") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("services"), dict):
        raise ComposeError(f"{path} has no services")
    return loaded


def read_services(path: Path, variables: Mapping[str, str], env_file: Path) -> dict[str, Service]:
    """The services of the file at `path`, by name, interpolated with `variables`.

    `env_file` stands for the `.env` beside the compose file wherever a service names that.
    """
    described = interpolate(load_compose(path)["services"], variables, path.name)
    services = {
        name: _service(name, service, _EnvFiles(path.parent, env_file), variables)
        for name, service in described.items()
    }
    for service in services.values():
        if unknown := service.depends_on.keys() - services.keys():
            raise ComposeError(f"{service.name} depends on unknown {', '.join(sorted(unknown))}")
    return services


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of an env file: NAME=value lines, `#` comments, quotes taken off."""
    variables = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = ASSIGNMENT.fullmatch(line.strip())
        if not found:
            raise ComposeError(f"{path}, line {number} is no NAME=value")
        variables[found[1]] = _unquoted(found[2])
    return variables


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return re.split(r"\s+#", value, maxsplit=1)[0]


@dataclass(frozen=True)
class _EnvFiles:
    folder: Path
    dot_env: Path

    def read(self, given: Any) -> dict[str, str]:
        variables: dict[str, str] = {}
        for entry in _list(given):
            name = entry["path"] if isinstance(entry, dict) else entry
            path = self.dot_env if Path(name) == Path(".env") else self.folder / name
            if not path.exists():
                raise ComposeError(f"the env file {name} is not there: make compose-env writes it")
            variables |= read_env_file(path)
        return variables


def _service(
    name: str, given: Mapping[str, Any], env_files: _EnvFiles, variables: Mapping[str, str]
) -> Service:
    environment = env_files.read(given.get("env_file")) | _environment(
        name, given.get("environment"), variables
    )
    published = dict(_published(name, port) for port in given.get("ports") or ())
    restart = str(given.get("restart", "no"))
    if not RESTART.fullmatch(restart):
        raise ComposeError(f"{name}: restart: {restart} is no restart policy")
    return Service(
        name=name,
        command=_words(name, "command", given.get("command")),
        entrypoint=_words(name, "entrypoint", given.get("entrypoint")),
        image=given.get("image"),
        environment=environment,
        working_dir=given.get("working_dir"),
        volumes=tuple(_volume(name, volume) for volume in given.get("volumes") or ()),
        ports=tuple(dict.fromkeys([*map(int, given.get("expose") or ()), *published])),
        published=published,
        depends_on=_depends_on(name, given.get("depends_on")),
        health=_health(name, given.get("healthcheck")),
        restart=restart,
        stop_signal=given.get("stop_signal"),
        stop_grace=seconds(given.get("stop_grace_period", "10s")),
    )


def _environment(name: str, given: Any, variables: Mapping[str, str]) -> dict[str, str]:
    """A name without a value passes on what `docker compose` has by that name, if it has it."""
    if isinstance(given, list):
        given = dict(entry.split("=", 1) for entry in given)
    passed = {
        key: variables.get(key) if value is None else value for key, value in (given or {}).items()
    }
    found = {variable: value for variable, value in passed.items() if value is not None}
    for variable, value in found.items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise ComposeError(f"{name}: environment {variable}: quote its value, {value!r}")
    return {variable: str(value) for variable, value in found.items()}


def _words(name: str, key: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ComposeError(f"{name}: {key} must be a list: a string would need a shell")
    return tuple(str(word) for word in given or ())


def _volume(name: str, given: Any) -> Volume:
    if isinstance(given, dict):
        return Volume(source=given["source"], target=given["target"].rstrip("/"))
    parts = str(given).split(":")
    if len(parts) not in (2, 3):
        raise ComposeError(f"{name}: volume {given!r} is no source:target")
    return Volume(source=parts[0], target=parts[1].rstrip("/"))


def _published(name: str, given: Any) -> tuple[int, int]:
    """The port inside, and that of the machine."""
    found = PUBLISHED.fullmatch(str(given))
    if not found:
        raise ComposeError(f"{name}: ports {given!r} must be address:port:port, on loopback")
    return int(found[2]), int(found[1])


def _depends_on(name: str, given: Any) -> dict[str, Condition]:
    if isinstance(given, list):
        return dict.fromkeys(given, "service_started")
    conditions = {
        other: options.get("condition", "service_started")
        for other, options in (given or {}).items()
    }
    if unknown := set(conditions.values()) - set(get_args(Condition)):
        raise ComposeError(f"{name}: depends_on has no condition {', '.join(sorted(unknown))}")
    return conditions


def _health(name: str, given: Mapping[str, Any] | None) -> HealthCheck | None:
    if given is None or given.get("disable"):
        return None
    test = given["test"]
    if not isinstance(test, list) or not test or test[0] not in ("CMD", "NONE"):
        raise ComposeError(f"{name}: healthcheck.test must be a list that begins with CMD")
    if test[0] == "NONE":
        return None
    spans = ("interval", "timeout", "start_period", "start_interval")
    options: dict[str, Any] = {span: seconds(given[span]) for span in spans if span in given}
    if "retries" in given:
        options["retries"] = int(given["retries"])
    return HealthCheck(command=_words(name, "healthcheck.test", test[1:]), **options)


def seconds(duration: object) -> float:
    """A duration of the specification, such as `1m30s`, in seconds."""
    found = DURATION.fullmatch(str(duration))
    if not found or not any(found.groups()):
        raise ComposeError(f"{duration!r} is no duration: write it as 1m30s")
    hours, minutes, whole, thousandths = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + whole + thousandths / 1000


def _list(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    return given if isinstance(given, list) else [given]
