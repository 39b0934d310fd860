"""The class path of a driver: a JVM takes archived classes only where it begins as when they were archived."""

import os
import subprocess
from pathlib import Path

import pytest

from include.setup.class_archive import archiving_command
from include.spark import conf
from include.spark.submit import job_environment, submit_command

ARCHIVED = "shared objects file (top)"


def say_version(command: list[str], **environment: str) -> None:
    """Start the JVM of a driver; Spark's version in the place of a job."""
    *options, _ = command
    subprocess.run(
        [*options, "--version"],
        env=os.environ | job_environment("local[2]") | environment,
        capture_output=True,
        check=True,
    )


def archived_classes(log: Path, settings: Path) -> int:
    """How many classes a driver's JVM takes from the archive, with this folder of settings."""
    says = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={log}"}
    command = submit_command("run_stream", [], master="local[2]")
    say_version(command, SPARK_CONF_DIR=str(settings), **says)
    return log.read_text().count(ARCHIVED)


@pytest.mark.spark
def test_classes_are_of_the_archive_with_a_folder_of_settings_and_without(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_DRIVER_JAVA_OPTIONS", conf.JAVA_OPTIONS)
    archive, settings = tmp_path / "classes.jsa", tmp_path / "settings"
    monkeypatch.setattr(conf, "CLASS_ARCHIVE", archive)
    say_version(archiving_command(archive), SPARK_CONF_DIR=str(tmp_path / "not there"))
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("spark.driver.memory 1g\n")
    without = archived_classes(tmp_path / "without.log", tmp_path / "not there")
    assert min(without, archived_classes(tmp_path / "with.log", settings)) > 100
