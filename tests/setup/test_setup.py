"""Set-up on machines that lack something: one clear line each, and nothing half done."""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from include.setup import install, java
from include.setup.java import check_java, java_version
from tests.refused import refused

ROOT = Path(__file__).resolve().parents[2]
JAVA_11 = "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2"
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
PYTHON_39 = "echo 3.9"


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def fresh_project(tmp_path):
    """The set-up scripts where there is no .venv yet."""
    shutil.copytree(ROOT / "include", tmp_path / "project" / "include")
    return tmp_path / "project"


def run_setup(project: Path, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """setup.sh with nothing on PATH but what lies in `path`."""
    (path / "dirname").symlink_to(str(shutil.which("dirname")))
    return subprocess.run(
        [project / "include" / "setup" / "setup.sh"],
        env={"PATH": str(path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2
    (line,) = (result.stdout + result.stderr).splitlines()
    return line


def test_an_old_python_is_named_with_its_version(fresh_project, tmp_path):
    program(tmp_path / "bin", "python3", PYTHON_39)
    line = only_line(run_setup(fresh_project, tmp_path / "bin"))
    assert ("3.11" in line, "3.9" in line) == (True, True)


def test_no_python_at_all(fresh_project, tmp_path):
    (tmp_path / "bin").mkdir()
    assert "3.11" in only_line(run_setup(fresh_project, tmp_path / "bin"))


def test_java_is_looked_at_before_anything_is_made(fresh_project, tmp_path):
    program(tmp_path / "bin", "java", JAVA_11)
    line = only_line(run_setup(fresh_project, tmp_path / "bin", PYTHON=sys.executable))
    assert "Java 11" in line
    assert not (fresh_project / ".venv").exists()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "21.0.1"', 21),
        ("No Java runtime present", None),
    ],
)
def test_java_tells_its_version(text, version):
    assert java_version(text) == version


def test_java_home_wins_over_path_as_it_does_in_spark_submit(tmp_path):
    program(tmp_path / "bin", "java", JAVA_17)
    program(tmp_path / "home" / "bin", "java", JAVA_11)
    check_java({"PATH": str(tmp_path / "bin")})
    with refused("not_installed", subject="java"):
        check_java({"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path / "home")})


@pytest.mark.parametrize(
    "environment", [{"PATH": "/no/such/folder"}, {"PATH": "", "JAVA_HOME": "/no/such/jdk"}]
)
def test_no_java(environment):
    with refused("not_installed", subject="java"):
        check_java(environment)


def test_a_python_without_venv_is_told_from_a_missing_python(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(program(tmp_path, "python3", "exit 1")))
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    install.VENV.symlink_to(tmp_path)  # of the link alone anything is taken away
    with refused("not_installed", subject=".venv"):
        install.make_venv()
    assert [file.name for file in tmp_path.iterdir()] == ["python3"]


@pytest.fixture
def usable_venv(tmp_path):
    venv = tmp_path / ".venv"
    program(venv / "bin", "python", "")
    program(venv / "bin", "pip", "").write_text(f"#!{venv}/bin/python\n")
    (venv / "lib" / "python{}.{}".format(*sys.version_info)).mkdir(parents=True)
    assert install.is_usable(venv)
    return venv


@pytest.mark.parametrize("program", ["pip", "python"])
def test_a_venv_that_was_interrupted_or_whose_python_was_removed_is_not_used(usable_venv, program):
    (usable_venv / "bin" / program).unlink()
    (usable_venv / "bin" / program).symlink_to("/no/such/file")
    assert not install.is_usable(usable_venv)


@pytest.mark.e2e
def test_a_venv_is_made_anew_and_used_where_it_was_made(tmp_path, monkeypatch):
    """In a folder whose name has a space, too: pip's first line then does not name its Python."""
    venv = tmp_path / "my project" / ".venv"
    venv.mkdir(parents=True)
    (venv / "left over").touch()
    monkeypatch.setattr(install, "VENV", venv)
    install.make_venv()
    assert install.is_usable(venv)
    assert not (venv / "left over").exists()
    assert not install.is_usable(venv.rename(tmp_path / ".venv"))


@pytest.fixture
def requirements(tmp_path, monkeypatch):
    """A project of one requirements file, whose .venv has a pip that does as told."""
    monkeypatch.setattr(install, "PROJECT", tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install, "VENV_PYTHON", tmp_path / ".venv" / "python")
    program(tmp_path / ".venv", "python", f"echo called >> {tmp_path}/calls")
    (tmp_path / "requirements.txt").write_text("one==1\n")
    return tmp_path / "requirements.txt"


@pytest.fixture
def only_packages(requirements, monkeypatch) -> Callable[[], None]:
    """Set-up of what is missing, where no more than packages can be."""
    (requirements.parent / ".venv" / "bin").mkdir()
    monkeypatch.setattr(install, "JARS", requirements.parent / ".jars")

    def set_up() -> None:
        parts = install.wanted_parts("java", with_tests=False)
        install.set_up([part for part in parts if "packages" in part.said])

    return set_up


def test_packages_are_installed_once_for_each_content_of_the_file(requirements, only_packages):
    for content in ("one==1\n", "one==1\n", "one==2\n"):
        requirements.write_text(content)
        only_packages()
    assert (requirements.parent / "calls").read_text().split() == ["called", "called"]
    link = requirements.parent / ".venv" / "bin" / "stateful"
    assert link.readlink() == Path("..", "..", "stateful")


def test_a_failed_install_is_repeated(requirements, only_packages):
    program(requirements.parent / ".venv", "python", "echo no network; exit 1")
    for _ in range(2):
        with refused("not_installed"):
            only_packages()


@pytest.mark.parametrize("file", ["requirements.txt", "tests/requirements.txt"])
def test_each_package_is_pinned_to_files_of_known_content(file):
    """One hash is enough for pip to ask for all: what an index has under a name is not enough."""
    text = (ROOT / file).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [each for each in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", each)] == []
    assert all(re.match(r"[\w.-]+(\[[^\]]*\])?==", each) for each in entries)


@pytest.fixture
def brought(monkeypatch) -> dict[str, bytes]:
    """The jars that the resolver brings, by file name; two are wanted."""
    brought = {"a-1.jar": b"a", "b-1.jar": b"b"}

    def resolve(jars: java.Jars, python: Path, ivy: Path) -> None:
        (ivy / "jars").mkdir(parents=True)
        for name, data in brought.items():
            (ivy / "jars" / name).write_bytes(data)

    monkeypatch.setattr(java, "resolve", resolve)
    return brought


@pytest.fixture
def jars(brought, tmp_path) -> java.Jars:
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in brought.items()]
    checksums = tmp_path / "java.sha256"
    checksums.write_text("\n".join(lines))
    return java.Jars(tmp_path / ".jars", ["a:b:1"], checksums)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_only_the_wanted_jars_stay(jars, brought):
    jars.folder.mkdir()
    (jars.folder / "a-0.jar").write_bytes(b"of an older release")
    (jars.folder / "b-1.jar").write_bytes(b"damaged")
    brought["log4j-9.jar"] = b"Spark has its own"
    assert jars.missing() == ["a-1.jar", "b-1.jar"]
    java.fetch_jars(jars, Path(sys.executable))
    assert jars.missing() == []
    assert names(jars.folder) == {"a-1.jar", "b-1.jar"}


def test_a_jar_with_another_checksum_is_refused(jars, brought):
    brought["b-1.jar"] = b"changed on the way"
    with refused("not_installed", subject="b-1.jar"):
        java.fetch_jars(jars, Path(sys.executable))
    assert "b-1.jar" not in names(jars.folder)
