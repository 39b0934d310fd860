"""Set-up, second step: Java, .venv, packages, jars. Each is done only when it is not there.

    python3 -m include.setup.install [--tests]

Standard library only: it makes the virtual environment that has the rest. It can be
interrupted anywhere and started again; with everything in place it needs no network.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from include.setup.install_progress import pinned, run_pip
from include.setup.jars import fetch_jars, missing_jars
from include.setup.java import SetupError, check_java

PROJECT = Path(__file__).resolve().parents[2]
VENV = PROJECT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = Path("requirements.txt")
TEST_REQUIREMENTS = Path("tests/requirements.txt")


def main(argv: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(description="Make .venv, install the packages, fetch the jars.")
    parser.add_argument("--tests", action="store_true", help="also what the tests need")
    args = parser.parse_args(argv)
    try:
        check_java(os.environ)
        if not is_usable(VENV):
            make_venv()
        install([REQUIREMENTS, TEST_REQUIREMENTS] if args.tests else [REQUIREMENTS])
        if missing_jars():
            say("fetching the Delta jars into .jars (once)")
            fetch_jars(VENV_PYTHON)
        link_command()
    except SetupError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the next start goes on from here\n")
        sys.exit(130)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_usable(venv: Path) -> bool:
    """Whether `venv` was completed, in this folder, with this version of Python.

    A moved or copied one still starts, but its scripts name the Python of the old folder.
    """
    pip = venv / "bin" / "pip"
    if not pip.is_file():
        return False
    shebang = pip.read_bytes().splitlines()[0]
    return os.fsencode(venv / "bin") in shebang and _runs_same_version(venv / "bin" / "python")


def _runs_same_version(python: Path) -> bool:
    code = "import sys, pip; print(*sys.version_info[:2])"
    try:
        result = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=False, cwd=PROJECT
        )
    except OSError:
        return False
    return result.stdout.split() == [str(part) for part in sys.version_info[:2]]


def make_venv() -> None:
    # Resolved, because this may be the Python of the .venv that is about to go.
    python = Path(sys.executable).resolve()
    can_make = subprocess.run(
        [python, "-c", "import venv, ensurepip"], capture_output=True, check=False
    )
    if can_make.returncode != 0:
        raise SetupError(
            f"{python} cannot make virtual environments, its venv module is missing: "
            "install it (Debian: apt-get install python3-venv) or name another with PYTHON="
        )
    say(f"making .venv with {python}")
    if VENV.exists():
        shutil.rmtree(VENV)
    made = subprocess.run([python, "-m", "venv", VENV], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise SetupError(f"{VENV} could not be made: {(made.stderr + made.stdout).strip()}")


def install(files: Sequence[Path]) -> None:
    """Install `files` unless each has been installed as it is now."""
    if all(_stamp(file).is_file() and _stamp(file).read_text() == _hash(file) for file in files):
        return
    say(f"installing the packages of {' and '.join(map(str, files))} (once, some minutes)")
    log = VENV / "install.log"
    paths = [PROJECT / file for file in files]
    options = [part for path in paths for part in ("-r", str(path))]
    pip = [str(VENV_PYTHON), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    if run_pip([*pip, *options], len(pinned(paths)), log, environment) != 0:
        tail = "\n".join(log.read_text().splitlines()[-10:])
        raise SetupError(
            "pip could not install the packages. Can this machine reach the package index? "
            f"Repeat the command when it can. The end of {log}:\n{tail}"
        )
    for file in files:
        _stamp(file).write_text(_hash(file))


def link_command() -> None:
    """`stateful` for a shell that has .venv activated."""
    link = VENV / "bin" / "stateful"
    if not link.is_symlink():
        link.symlink_to(Path("..", "..", "stateful"))


def _stamp(requirements: Path) -> Path:
    """Where .venv remembers which content of the file was installed."""
    return VENV / f"installed-{'-'.join(requirements.with_suffix('').parts)}"


def _hash(requirements: Path) -> str:
    return hashlib.sha256((PROJECT / requirements).read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
