"""The start of a job: its command, for a lake on S3 too, its environment, and its words at a terminal."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from include.registry import stream_named
from include.spark import conf, submit
from include.spark.submit import SPARK_SUBMIT, job_environment, submit_command
from tests.refused import refused


def option(command: list[str], name: str) -> list[str]:
    return [value for key, value in pairwise(command) if key == name]


def test_only_a_stream_runs_under_state_settings():
    def sets_state_store(command: list[str]) -> bool:
        return any("stateStore" in conf for conf in option(command, "--conf"))

    assert sets_state_store(submit_command("run_stream", [], stream_named("user_counts")))
    assert not sets_state_store(submit_command("ingest_source", []))


def test_the_master_is_all_cores_unless_named(monkeypatch):
    monkeypatch.setenv("SPARK_MASTER", "")  # as docker-compose gives what .env leaves out
    assert option(submit_command("run_stream", []), "--master") == ["local[*]"]


def test_another_spark_or_python_in_the_shell_is_not_used(monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-3.0")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    environment = os.environ | job_environment()
    assert Path(environment["SPARK_HOME"], "bin", "spark-submit").is_file()
    assert "/opt/spark-3.0" not in environment["SPARK_HOME"]
    assert environment["PYSPARK_DRIVER_PYTHON"] == environment["PYSPARK_PYTHON"] == sys.executable


def test_the_driver_s_jvm_is_for_short_runs_unless_a_setting_says_otherwise(monkeypatch):
    def java_options() -> str:
        given = option(submit_command("run_stream", []), "--conf")
        return dict(value.split("=", 1) for value in given)["spark.driver.extraJavaOptions"]

    monkeypatch.setattr(conf, "CLASS_ARCHIVE", Path("not there"))
    monkeypatch.delenv("SPARK_DRIVER_JAVA_OPTIONS", raising=False)
    assert java_options().endswith(" -XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    monkeypatch.setenv("SPARK_DRIVER_JAVA_OPTIONS", "-XX:+UseZGC")
    assert java_options().endswith(" -XX:+UseZGC")
    monkeypatch.setenv("SPARK_DRIVER_JAVA_OPTIONS", "")
    assert java_options().count("-XX") == 1
    assert java_options().endswith(" -XX:+ExitOnOutOfMemoryError")
    assert "log4j2.properties" in java_options()


SAYS = """
echo shown $SPARK_LOG_SHOWN
printf '%s\\n' 'WARNING: Using incubator modules: jdk.incubator.vector' '' \
    'Streaming TransformWithStateInPandas Python worker finish init' '12:00:00 ERROR Task: lost' >&2
exit 7
"""


@pytest.mark.parametrize(("level", "lines"), [(None, 1), ("warn", 4)])
def test_a_job_that_is_started_by_hand_says_errors_or_what_is_asked_for(
    monkeypatch, capfd, level, lines
):
    monkeypatch.setattr(submit, "submit_command", lambda *_: ["sh", "-c", SAYS])
    monkeypatch.delenv("SPARK_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("SPARK_LOG_LEVEL", level)
    assert submit.run_job("run_stream", []) == 7
    out, error = capfd.readouterr()
    assert out.split() == ["shown", "error"][: 1 if level else 2]
    assert error.splitlines()[-1] == "12:00:00 ERROR Task: lost"
    assert error.count("\n") == lines


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_job_tells_its_progress_where_somebody_watches(monkeypatch, capfd, is_terminal):
    monkeypatch.setattr(submit, "submit_command", lambda *_: ["sh", "-c", "env"])
    monkeypatch.delenv("SPARK_LOG_LEVEL", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert submit.run_job("run_stream", []) == 0
    assert (submit.PROGRESS in capfd.readouterr().out) is is_terminal


@pytest.mark.parametrize("level", ["error", None])
@pytest.mark.parametrize(("ends", "code"), [("exit 3", 3), ("kill -KILL $$", -9)])
def test_a_job_that_cannot_say_itself_that_it_ended_does_not_end_without_a_word(
    monkeypatch, capfd, tmp_path, ends, code, level
):
    monkeypatch.setattr(submit, "submit_command", lambda *_: ["sh", "-c", ends])
    monkeypatch.delenv("SPARK_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("SPARK_LOG_LEVEL", level)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert submit.run_job("run_stream", []) == code
    said = capfd.readouterr().err.splitlines()[-1]
    assert str(code) in said
    assert [str(log) in said for log in tmp_path.iterdir()] == [True] * (level is None)


def fake_spark_home(folder: Path, script: str) -> Path:
    submit = folder / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_spark_submit_dies_with_the_process_that_started_it(tmp_path):
    # What it holds open (the pipe) tells when it is gone, whoever adopts it.
    home = fake_spark_home(tmp_path, "echo started; exec sleep 600")
    code = f"import subprocess; subprocess.run([{str(SPARK_SUBMIT)!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"SPARK_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        assert parent.stdout.read() == ""  # returns at the end of the last holder


ON_S3 = ["--stream", "user_counts", "--lake", "s3a://bucket/lake"]
ELSEWHERE = ["--stream", "user_counts", "--lake", "/lake"]
LOG_STORE = "spark.delta.logStore.s3a.impl"


@pytest.fixture
def s3_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the project's, as set-up leaves it."""
    monkeypatch.setattr(conf, "S3_JARS", tmp_path)
    (tmp_path / "hadoop-aws.jar").touch()
    return tmp_path


def given(args: list[str], name: str, master: str = "local[2]") -> list[str]:
    return option(submit_command("run_stream", args, master=master), name)


@pytest.mark.parametrize("root", ["s3a://bucket/lake", "s3://bucket/lake"])
def test_a_job_on_s3_gets_the_connector_and_writes_once(s3_jars, root):
    assert given(["--lake", root], "--jars") == [str(s3_jars / "hadoop-aws.jar")]
    conf = given(["--lake", root], "--conf")
    assert f"{LOG_STORE}=stateful.lake.ConditionalLogStore" in conf


def test_on_a_cluster_executors_get_all_jars(s3_jars):
    of_s3 = {f"{s3_jars}/hadoop-aws.jar"}
    shipped, elsewhere = (given(args, "--jars", "spark://host:7077") for args in (ON_S3, ELSEWHERE))
    assert of_s3 < set(shipped[0].split(","))
    assert set(shipped[0].split(",")) - of_s3 == set(elsewhere[0].split(","))


def test_without_set_up_the_job_is_refused_and_set_up_named(tmp_path, monkeypatch):
    monkeypatch.setattr(conf, "S3_JARS", tmp_path)
    with refused("missing_jars", command="LAKE=s3a://... ./stateful validate"):
        submit_command("run_stream", ON_S3, master="local[2]")


def test_a_store_of_one_s_own_is_asked_by_path(s3_jars, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert not any("path.style" in setting for setting in given(ON_S3, "--conf"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store:9000")
    conf = given(ON_S3, "--conf")
    assert "spark.hadoop.fs.s3a.endpoint=https://store:9000" in conf
    assert "spark.hadoop.fs.s3a.path.style.access=true" in conf


def test_no_secret_stands_on_a_command_line(s3_jars, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    assert "s3cret" not in " ".join(submit_command("run_stream", ON_S3))
