"""Set-up, second step: Java, .venv, packages, jars. Each is done only when it is not there.

    python3 -m include.setup.install [--tests]

Standard library only: it makes the virtual environment that has the rest. It can be
interrupted anywhere and started again; with everything in place it needs no network.
What is there is known by its content: the time of a file, by which Make goes, is an old one
after a copy, and says nothing of a moved .venv or a damaged jar.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from include.lake.errors import last_line
from include.lake.s3 import is_s3
from include.settings import default_lake
from include.setup import java as s3
from include.setup.class_archive import is_archived
from include.setup.java import (
    SetupError,
    check_java,
    checksum_of,
    compile_classes,
    fetch_jars,
    missing_jars,
    not_fetched,
)
from include.spark.conf import JARS, classes_jar

PROJECT = Path(__file__).resolve().parents[2]
VENV = PROJECT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = Path("requirements.txt")
TEST_REQUIREMENTS = Path("tests/requirements.txt")


def main(argv: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description="Make .venv, install the packages, fetch the jars.")
    parser.add_argument("--tests", action="store_true", help="also what the tests need")
    args = parser.parse_args(argv)
    files = [REQUIREMENTS, TEST_REQUIREMENTS] if args.tests else [REQUIREMENTS]
    try:
        java = check_java(os.environ)
        # The tests start their JVMs otherwise.
        archived_for = None if args.tests else java
        if not (is_complete(files) and (archived_for is None or is_archived(archived_for))):
            set_up(files, archived_for)
    except SetupError as error:
        sys.stderr.write(f"{last_line(error)}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the next start goes on from here\n")
        sys.exit(130)


def is_complete(files: Sequence[Path]) -> bool:
    """Whether jobs can be run."""
    is_there = is_usable(VENV) and all(map(is_installed, files)) and not missing_jars()
    # Jobs do without, in a folder of somebody else.
    is_there = is_there and (classes_jar().is_file() or not os.access(JARS, os.W_OK))
    return is_there and (s3.is_ready() or not is_s3(default_lake()))


def set_up(files: Sequence[Path], archived_for: str | None = None) -> None:
    """Whatever is missing. Of two at once the second waits, and finds all of it.

    `archived_for`: the Java to archive Spark's classes for; None for none.

    Those who write into .venv inherit the lock: they hold it when this process is killed.
    """
    JARS.mkdir(exist_ok=True)
    with (JARS / "set-up.lock").open("w") as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            say("waiting for the set-up that another command has begun")
            flock(lock, LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        if not is_usable(VENV):
            make_venv()
        install(files)
        link_command()
        if missing_jars():
            say("fetching the Delta jars into .jars (once)")
            fetch_jars(VENV_PYTHON)
        if not classes_jar().is_file():
            compile_classes(VENV_PYTHON)
        if is_s3(default_lake()) and not s3.is_ready():
            say("fetching what S3 needs into .jars/s3 (once)")
            s3.prepare(VENV_PYTHON)
        if archived_for is not None and not is_archived(archived_for):
            say("archiving the classes of Spark, which shortens each run (once, a minute)")
            command = [str(VENV_PYTHON), "-m", "include.setup.class_archive", archived_for]
            subprocess.run(command, cwd=PROJECT, check=False, close_fds=False)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_usable(venv: Path) -> bool:
    """Whether `venv` was completed, in this folder, with this version of Python.

    A moved or copied one still starts, but its scripts name the Python of the old folder.
    """
    # Made last, so that an interrupted one has none.
    pip = venv / "bin" / "pip"
    library = venv / "lib" / "python{}.{}".format(*sys.version_info)
    is_there = (venv / "bin" / "python").exists() and library.is_dir() and pip.is_file()
    return is_there and os.fsencode(venv / "bin") in pip.read_bytes()


def make_venv() -> None:
    """Anew; SetupError where that is not possible, or would clear what is another folder's."""
    if VENV.is_symlink():
        raise SetupError(
            f"{VENV} is a link to {VENV.resolve()}, which was made for another folder or never "
            f"completed, and would be cleared: repeat the command after",
            subject=".venv",
            command=f"rm {VENV}",
        )
    # Resolved, because this may be the Python of the .venv that is about to go.
    python = Path(sys.executable).resolve()
    say(f"making .venv with {python}")
    command: list[str | Path] = [python, "-m", "venv", "--clear", VENV]
    made = subprocess.run(command, capture_output=True, text=True, check=False, close_fds=False)
    if made.returncode != 0:
        raise SetupError(
            f"{python} cannot make {VENV}: install its venv module (Debian: apt-get install "
            "python3-venv) or name another Python with PYTHON=. "
            f"It said: {' '.join((made.stdout + made.stderr).split())}",
            subject=".venv",
        )


def install(files: Sequence[Path]) -> None:
    """Install `files` unless each has been installed as it is now."""
    if all(map(is_installed, files)):
        return
    say(f"installing the packages of {' and '.join(map(str, files))} (once, some minutes)")
    log = VENV / "install.log"
    options = [part for file in files for part in ("-r", str(PROJECT / file))]
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
    with log.open("w") as output:
        made = subprocess.run(
            [*pip, "--progress-bar", "off", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            close_fds=False,
        )
    if made.returncode != 0:
        raise not_fetched("pip could not install the packages", "package index", log)
    for file in files:
        _stamp(file).write_text(checksum_of(PROJECT / file))


def is_installed(requirements: Path) -> bool:
    stamp = _stamp(requirements)
    return stamp.is_file() and stamp.read_text() == checksum_of(PROJECT / requirements)


def _stamp(requirements: Path) -> Path:
    """Where .venv remembers which content of the file was installed."""
    return VENV / f"installed-{'-'.join(requirements.with_suffix('').parts)}"


def link_command() -> None:
    """`stateful` for a shell that has .venv activated."""
    link = VENV / "bin" / "stateful"
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", "stateful"))


if __name__ == "__main__":
    main()
