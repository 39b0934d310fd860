"""The class path of a driver: a JVM takes archived classes only where it begins as that of set-up's."""

import os
import subprocess
from pathlib import Path

import pytest

from include.spark.conf import CLASS_ARCHIVE, JAVA_OPTIONS
from include.spark.submit import job_environment, submit_command

ARCHIVED = "shared objects file (top)"


def archived_classes(log: Path, environment: dict[str, str]) -> int:
    """How many classes a driver's JVM takes from set-up's archive, when it only says its version."""
    *options, _ = submit_command("run_stream", [], master="local[1]")
    says = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={log}"}
    subprocess.run(
        [*options, "--version"],
        env=os.environ | job_environment("local[1]") | says | environment,
        capture_output=True,
        check=True,
    )
    return log.read_text().count(ARCHIVED)


@pytest.mark.spark
def test_classes_are_of_the_archive_with_a_folder_of_settings_and_without(tmp_path, monkeypatch):
    assert CLASS_ARCHIVE.is_file(), "set-up makes it: `make test-setup`"
    # The archive is of a JVM with this collector.
    monkeypatch.setenv("SPARK_DRIVER_JAVA_OPTIONS", JAVA_OPTIONS)
    without = archived_classes(tmp_path / "without.log", {"SPARK_CONF_DIR": str(tmp_path / "no")})
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("spark.driver.memory 1g\n")
    given = archived_classes(tmp_path / "with.log", {"SPARK_CONF_DIR": str(settings)})
    assert min(given, without) > 100
