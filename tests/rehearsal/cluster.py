"""The cluster of docker-compose.yaml below one folder of this machine, ready to be started."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from include.docker.compose_env import generated_environment, write_new
from include.lake.paths import Lake
from include.settings import PROJECT
from tests.rehearsal import postgres
from tests.rehearsal.compose_file import Service, load_compose, read_env_file, read_services
from tests.rehearsal.image import Image, read_dockerfile
from tests.rehearsal.interpolation import ComposeError
from tests.rehearsal.not_rehearsed import unknown_keys
from tests.rehearsal.process import Folders
from tests.rehearsal.services import Say, Services
from tests.rehearsal.translate import HOST, Places, free_ports, ports_of, translate

COMPOSE = PROJECT / "docker-compose.yaml"
DOCKERFILE = PROJECT / "include" / "docker" / "Dockerfile"
IMAGE_PROJECT, IMAGE_VENV = "/opt/stateful-lake", "/opt/venv"
# What the Dockerfile copies into the image.
COPIED = ("include", "dags", "spark_jobs")
USER = "admin"


@dataclass(frozen=True)
class Cluster:
    """The services, and where those who use them find what is inside."""

    services: Services
    places: Places
    environments: Mapping[str, Mapping[str, str]]
    variables: Mapping[str, str]

    @property
    def lake(self) -> Lake:
        return Lake(self.variables.get("LAKE") or str(self.places.volumes / "lake"))

    @property
    def password(self) -> str:
        return self.variables["AIRFLOW_ADMIN_PASSWORD"]

    def url(self, service: str, port: int) -> str:
        return f"http://{HOST}:{self.places.ports[service, port]}"

    def execute(self, service: str, command: Sequence[str], log: Path) -> int:
        """As `docker compose exec`: the exit code; what it says is appended to `log`."""
        with log.open("ab") as output:
            return subprocess.run(
                command,
                cwd=self.services.services[service].working_dir,
                env=dict(self.environments[service]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode


def make_cluster(folder: Path, settings: Mapping[str, str], say: Say) -> Cluster:
    """Everything but its start: secrets, ports, a copy of the project, an empty database.

    `settings` are those that a user would write into `.env`. Raises ComposeError.
    """
    if unknown := unknown_keys(load_compose(COMPOSE)["services"]):
        raise ComposeError(f"neither rehearsed nor named as such: {', '.join(unknown)}")
    folders = Folders(folder)
    folders.make()
    variables = _write_env_file(folder / ".env", settings)
    described = read_services(COMPOSE, variables, folder / ".env")
    project = _copy_project(folder / "project")
    places = Places(
        ports=ports_of(described.values()),
        image_folders={IMAGE_PROJECT: project, IMAGE_VENV: Path(sys.prefix)},
        volumes=folders.volumes,
        project=project,
    )
    image = read_dockerfile(DOCKERFILE)
    services, environments = {}, {}
    for service in described.values():
        inside = _within_image(service, image)
        translated = translate(inside, described, places)
        if postgres.is_postgres(service):
            translated = _with_database(translated, places, folders)
        for target in places.folders(translated).values():
            target.mkdir(parents=True, exist_ok=True)
        services[service.name] = translated
        environments[service.name] = _environment(translated, folders)
    return Cluster(Services(services, environments, folders, say), places, environments, variables)


def _write_env_file(file: Path, settings: Mapping[str, str]) -> dict[str, str]:
    (port,) = free_ports(1)
    write_new(file, generated_environment() | {"AIRFLOW_PORT": str(port)} | dict(settings))
    return read_env_file(file)


def _copy_project(target: Path) -> Path:
    """So that neither an edit meanwhile nor what Airflow writes touches the one for the other."""
    leave = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(PROJECT / name, target / name, ignore=leave)
    (target / ".jars").symlink_to(PROJECT / ".jars")
    return target


def _within_image(service: Service, image: Image) -> Service:
    """The service with what our image sets; others' images are not looked into."""
    if postgres.is_postgres(service):
        return service
    return replace(
        service,
        environment={**image.environment, **service.environment},
        working_dir=service.working_dir or image.working_dir,
    )


def _with_database(service: Service, places: Places, folders: Folders) -> Service:
    data = places.folders(service).get(postgres.DATA)
    if data is None:
        raise ComposeError(f"{service.name} has no volume at {postgres.DATA}")
    programs = postgres.postgres_programs()
    return postgres.prepare(service, data, programs, folders.root / "run" / service.name)


def _environment(service: Service, folders: Folders) -> dict[str, str]:
    """The service's own, over what any container has; nothing else of ours comes through."""
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(folders.root / "home"),
        "LANG": "C.UTF-8",
        # A container's own address. Here Spark would take the machine's, and listen there.
        "SPARK_LOCAL_IP": HOST,
    }
    if "JAVA_HOME" in os.environ:
        base["JAVA_HOME"] = os.environ["JAVA_HOME"]
    own = {
        name: value.replace("$PATH", base["PATH"]) for name, value in service.environment.items()
    }
    return base | own
