"""What a job is given for a lake on S3, and that one on any other lake is given nothing of it."""

from itertools import pairwise
from pathlib import Path

import pytest

from include.spark import conf as s3
from include.spark.submit import submit_command
from tests.refused import refused

ON_S3 = ["--stream", "user_counts", "--lake", "s3a://bucket/lake"]
ELSEWHERE = ["--stream", "user_counts", "--lake", "/lake"]
LOG_STORE = "spark.delta.logStore.s3a.impl"


@pytest.fixture
def s3_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the project's, as set-up leaves it."""
    monkeypatch.setattr(s3, "S3_JARS", tmp_path)
    (tmp_path / "hadoop-aws.jar").touch()
    return tmp_path


def given(args: list[str], option: str, master: str = "local[2]") -> list[str]:
    """What a job's command has after each such option."""
    command = submit_command("run_stream", args, master=master)
    return [value for key, value in pairwise(command) if key == option]


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
    monkeypatch.setattr(s3, "S3_JARS", tmp_path)
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
