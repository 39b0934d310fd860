"""The `postgres` service with Debian's PostgreSQL: what its official image does, as processes.

The image takes POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, makes a database of that name at
its first start, and listens on all interfaces; here on loopback.
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.debian import found_or_installed
from tests.rehearsal.compose_file import Service
from tests.rehearsal.interpolation import ComposeError
from tests.rehearsal.translate import HOST

DEBIAN = Path("/usr/lib/postgresql")
PROGRAMS = ("initdb", "postgres", "pg_isready")
DATA = "/var/lib/postgresql/data"
DEFAULT_SIGNAL = "SIGINT"  # the official image's: end now, cleanly


def is_postgres(service: Service) -> bool:
    return (service.image or "").split(":")[0] == "postgres"


def postgres_programs() -> Path:
    """The folder with PostgreSQL's programs; Debian's package is installed when root has none.

    Raises ComposeError with what to do when there is none and this is not root.
    """
    found = found_or_installed(_find_programs, "postgresql")
    if found is None:
        raise ComposeError(
            "no PostgreSQL here: install it (Debian: apt-get install postgresql), or have its "
            "initdb and postgres on PATH"
        )
    return found


def _find_programs() -> Path | None:
    versions = [path for path in DEBIAN.glob("*/bin") if path.parent.name.isdigit()]
    on_path = shutil.which("initdb")
    folders = sorted(versions, key=lambda path: -int(path.parent.name))
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    complete = (path for path in folders if all((path / name).exists() for name in PROGRAMS))
    return next(complete, None)


def as_postgres_user() -> list[str]:
    """What a command begins with so that it does not run as root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return []
    name = _unprivileged_user()
    return ["setpriv", f"--reuid={name}", f"--regid={pwd.getpwnam(name).pw_gid}", "--clear-groups"]


def _unprivileged_user() -> str:
    known = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def prepare(service: Service, data: Path, programs: Path, run: Path) -> Service:
    """The translated service as it runs here, its database made in `data` unless it is there.

    `run` is a folder for its socket. Raises ComposeError with what initdb said.
    """
    environment = {**service.environment, "PATH": f"{programs}:{os.environ['PATH']}"}
    environment |= {"PGDATA": str(data)}
    for folder in (data, run):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _give_away(folder)
    if not (data / "PG_VERSION").exists():
        _make_database(service.environment, data, programs, run / "password")
    if service.command[:1] != ("postgres",):
        raise ComposeError(f"{service.name}: command must begin with postgres")
    # The socket's folder of Debian belongs to the system's own server.
    options = ["-c", f"listen_addresses={HOST}", "-c", f"unix_socket_directories={run}"]
    return replace(
        service,
        command=(*as_postgres_user(), *service.command, *options),
        environment=environment,
        working_dir=str(data),
        stop_signal=service.stop_signal or DEFAULT_SIGNAL,
    )


def _give_away(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, _unprivileged_user())


def _make_database(
    environment: Mapping[str, str], data: Path, programs: Path, password_file: Path
) -> None:
    user, password = environment.get("POSTGRES_USER", "postgres"), environment["POSTGRES_PASSWORD"]
    initdb = [f"{programs}/initdb", "-D", str(data), "-U", user, f"--pwfile={password_file}"]
    initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
    # Not by a pipe: another user may not open that one's.
    password_file.write_text(f"{password}\n")
    _give_away(password_file)
    _run(initdb, "", data)
    password_file.unlink()
    name = environment.get("POSTGRES_DB", user)
    if name != "postgres":
        single = [f"{programs}/postgres", "--single", "-D", str(data), "postgres"]
        _run(single, f'CREATE DATABASE "{name}"\n', data)


def _run(command: list[str], given: str, folder: Path) -> None:
    done = subprocess.run(
        [*as_postgres_user(), *command],
        input=given,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ComposeError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-2000:]}")
