"""The archive of Spark's classes: made once for a Java and its jars, and never in the way."""

import os
import shlex
from pathlib import Path

import pytest

from include.setup import class_archive
from include.spark import conf
from include.spark import conf as java_classes

JAVA = 'openjdk version "17.0.15"'


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jars in the place of the project's, with a space in its name."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for jar in ("delta.jar", java_classes.NAME.format("0")):
        (folder / jar).write_text("jar")
    monkeypatch.setattr(conf, "JARS", folder)
    monkeypatch.setattr(class_archive, "JARS", folder)
    monkeypatch.setattr(class_archive, "STAMP", folder / "classes.made-of")
    for module in (class_archive, conf):
        monkeypatch.setattr(module, "CLASS_ARCHIVE", folder / "classes.jsa")
    return folder


def make(monkeypatch: pytest.MonkeyPatch, code: int = 0, leaves: bool = True) -> str:
    """Let set-up make it with a job that ends so; the options of its JVM."""
    options = []

    def job(name: str, arguments: list[str]) -> int:
        options.append(conf.driver_java_options())
        if leaves:
            (class_archive.JARS / "classes.new").write_text("classes")
        return code

    with monkeypatch.context() as patched:
        patched.setattr(class_archive, "run_job", job)
        patched.setattr(os, "environ", dict(os.environ))
        patched.setattr("sys.argv", ["class_archive", JAVA])
        class_archive.main()
    return options[0]


def test_it_is_made_once_and_again_for_another_java_or_other_jars(jars, monkeypatch):
    assert not class_archive.is_archived(JAVA)
    make(monkeypatch)
    assert (jars / "classes.jsa").read_text() == "classes"
    assert class_archive.is_archived(JAVA)
    assert not class_archive.is_archived('openjdk version "21.0.1"')
    os.utime(jars / "delta.jar", (0, 0))
    assert not class_archive.is_archived(JAVA)


@pytest.mark.parametrize(("code", "leaves"), [(1, True), (1, False), (0, False)])
def test_where_it_cannot_be_made_jobs_do_without_and_it_is_not_tried_each_time(
    jars, monkeypatch, code, leaves
):
    make(monkeypatch)
    make(monkeypatch, code, leaves)
    assert not (jars / "classes.jsa").exists()
    assert class_archive.is_archived(JAVA)
    assert conf.archive_options() == []


def test_the_job_archives_into_a_new_file_what_all_jobs_load_from_the_archive(jars, monkeypatch):
    options = shlex.split(make(monkeypatch))
    assert f"-XX:ArchiveClassesAtExit={jars}/classes.new" in options
    assert not [part for part in options if "SharedArchiveFile" in part]
    assert f"-XX:SharedArchiveFile={jars}/classes.jsa" in shlex.split(conf.driver_java_options())
