"""The jar of our classes: made of today's sources by any Java, and loud where it cannot be."""

import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from include.setup import install, java
from include.spark import conf
from include.spark import conf as java_classes
from tests.refused import refused

PYTHON = Path(sys.executable)


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the project's Delta jars in the place of the project's."""
    for jar in java_classes.JARS.glob("io.delta_*.jar"):
        (tmp_path / jar.name).symlink_to(jar)
    for module in (java, java_classes, conf):
        monkeypatch.setattr(module, "JARS", tmp_path)
    return tmp_path


def ours(jars: Path) -> list[Path]:
    return list(jars.glob("stateful-lake-*"))


@pytest.mark.slow
def test_each_source_is_compiled_in_the_place_of_older_ones(jars):
    (jars / "stateful-lake-0123456789abcdef.jar").touch()
    java.compile_classes(PYTHON)
    assert ours(jars) == [java_classes.classes_jar()]
    with ZipFile(java_classes.classes_jar()) as jar:
        compiled = {name.removesuffix(".class") for name in jar.namelist()}
    assert {f"stateful/lake/{file.stem}" for file in java_classes.java_sources()} <= compiled


@pytest.mark.slow
def test_what_does_not_compile_is_said_and_leaves_what_there_was(jars, monkeypatch):
    before = jars / "stateful-lake-0123456789abcdef.jar"
    before.touch()
    (jars / "java").mkdir()
    (jars / "java" / "Wrong.java").write_text("class Wrong { int x = nowhere; }")
    monkeypatch.setattr(java_classes, "SOURCES", jars / "java")
    with refused("not_installed", subject="java"):
        java.compile_classes(PYTHON)
    assert ours(jars) == [before]


def test_set_up_is_not_complete_with_the_classes_of_other_sources(jars, monkeypatch):
    monkeypatch.setattr(install, "JARS", jars)
    parts = install.wanted_parts("java", with_tests=False)
    (classes,) = [part for part in parts if "classes" in part.said and "Spark" not in part.said]
    assert not classes.is_there()
    java_classes.classes_jar().touch()
    assert classes.is_there()
    (jars / "java").mkdir()
    (jars / "java" / "Other.java").write_text("class Other {}")
    monkeypatch.setattr(java_classes, "SOURCES", jars / "java")
    assert not classes.is_there()


def test_local_jobs_do_without_the_classes_until_set_up_has_made_them(jars):
    assert conf.conf_on("local[2]") == {}
    (jars / "stateful-lake-0123456789abcdef.jar").touch()
    assert not ours_of(conf.jars())
    java_classes.classes_jar().touch()
    assert conf.conf_on("local[2]") == conf.FORKLESS
    assert ours_of(conf.jars()) == [java_classes.classes_jar()]


def ours_of(found: list[Path]) -> list[Path]:
    return [jar for jar in found if jar.match("stateful-lake-*")]
