"""Set-up, second step: Java, .venv, packages and jars, as far as they are missing.

    python3 -m include.setup.install [--tests]

Standard library only, as .venv is made here. It can be interrupted and started again; with everything
in place it needs no network. Parts are recognized by their content: a file's time, which Make looks at,
says nothing of a copied project, a moved .venv or a damaged jar.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from fcntl import LOCK_EX, flock
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from include.lake.errors import last_line
from include.setup.class_archive import is_archived
from include.setup.java import (
    DELTA,
    S3,
    SetupError,
    check_java,
    checksum_of,
    compile_classes,
    fetch_jars,
    not_fetched,
)
from include.spark.conf import JARS, classes_jar

PROJECT = Path(__file__).resolve().parents[2]
VENV = PROJECT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = Path("requirements.txt")
TEST_REQUIREMENTS = Path("tests/requirements.txt")


class Part(NamedTuple):
    """One part of what jobs need."""

    said: str  # printed while it is made
    is_there: Callable[[], bool]
    make: Callable[[], Any]


# Fetched when a command first names a lake on S3.
OF_S3 = Part(
    "fetching what S3 needs into .jars/s3 (once)",
    lambda: not S3.missing(),
    partial(fetch_jars, S3, Path(sys.executable)),
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description="Make .venv, install the packages, fetch the jars.")
    parser.add_argument("--tests", action="store_true", help="also what the tests need")
    args = parser.parse_args(argv)
    try:
        parts = wanted_parts(check_java(os.environ), args.tests)
        if not all(part.is_there() for part in parts):
            set_up(parts)
    except SetupError as error:
        sys.stderr.write(f"{last_line(error)}\n")
        sys.exit(error.exit_code)


def wanted_parts(java: str, with_tests: bool) -> list[Part]:
    """The parts in the order of their making; `java` is the output of `java -version`."""
    files = [REQUIREMENTS, TEST_REQUIREMENTS] if with_tests else [REQUIREMENTS]
    parts = [
        Part("making .venv", partial(is_usable, VENV), make_venv),
        Part(
            f"installing the packages of {' and '.join(map(str, files))} (once, some minutes)",
            lambda: all(map(is_installed, files)),
            partial(install, files),
        ),
        Part(
            "fetching the Delta jars into .jars (once)",
            lambda: not DELTA.missing(),
            partial(fetch_jars, DELTA, VENV_PYTHON),
        ),
        # Not in a folder of somebody else: jobs run without.
        Part(
            "compiling our classes",
            lambda: classes_jar().is_file() or not os.access(JARS, os.W_OK),
            partial(compile_classes, VENV_PYTHON),
        ),
    ]
    if not with_tests:  # tests start their JVMs without it
        said = "archiving the classes of Spark, which shortens each run (once, a minute)"
        command = [str(VENV_PYTHON), "-m", "include.setup.class_archive", java]
        make = partial(subprocess.run, command, cwd=PROJECT, check=False)
        parts.append(Part(said, partial(is_archived, java), make))
    return parts


def set_up(parts: Sequence[Part]) -> None:
    """Make what is missing; a second set-up waits for the first."""
    JARS.mkdir(exist_ok=True)
    with (JARS / "set-up.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        for part in parts:
            if not part.is_there():
                sys.stderr.write(f"{part.said}\n")
                part.make()


def is_usable(venv: Path) -> bool:
    """True if `venv` was completed in this folder, which its scripts name, with this Python."""
    # pip comes last: an interrupted one has none.
    pip = venv / "bin" / "pip"
    library = venv / "lib" / "python{}.{}".format(*sys.version_info)
    is_there = (venv / "bin" / "python").exists() and library.is_dir() and pip.is_file()
    return is_there and os.fsencode(venv / "bin") in pip.read_bytes()


def make_venv() -> None:
    """Make .venv; raises SetupError when this Python cannot."""
    if VENV.is_symlink():
        VENV.unlink()  # not what it points to is cleared
    # Resolved, as this may be the Python of the .venv that is cleared.
    python = Path(sys.executable).resolve()
    command: list[str | Path] = [python, "-m", "venv", "--clear", VENV]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise SetupError(
            f"{python} cannot make {VENV}: install its venv module (Debian: apt-get install "
            "python3-venv) or name another Python with PYTHON=. "
            f"It said: {' '.join((made.stdout + made.stderr).split())}",
            subject=".venv",
        )


def install(files: Sequence[Path]) -> None:
    """Install the requirements `files`, and a link to `stateful` in .venv/bin."""
    log = VENV / "install.log"
    options = [part for file in files for part in ("-r", str(PROJECT / file))]
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    with log.open("w") as output:
        made = subprocess.run(
            [*pip, "--progress-bar", "off", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if made.returncode != 0:
        raise not_fetched("pip could not install the packages", "package index", log)
    link = VENV / "bin" / "stateful"
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", "stateful"))
    for file in files:
        _stamp(file).write_text(checksum_of(PROJECT / file))


def is_installed(requirements: Path) -> bool:
    stamp = _stamp(requirements)
    return stamp.is_file() and stamp.read_text() == checksum_of(PROJECT / requirements)


def _stamp(requirements: Path) -> Path:
    """The file of .venv that has the checksum of the installed requirements."""
    return VENV / f"installed-{'-'.join(requirements.with_suffix('').parts)}"


if __name__ == "__main__":
    main()
