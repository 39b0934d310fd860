"""What is said of a Spark or Delta that the project was not tried with, before a JVM starts."""

import json
import re
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.spark_task import spark_task
from include.cli.__main__ import main
from include.setup.jars import PACKAGE
from include.spark import local_jobs, submit, versions
from include.spark.versions import TRIED, Versions, installed, refuse_unfit, untried
from tests.refused import refused

ROOT = Path(__file__).resolve().parents[2]
SPARK, DELTA = TRIED[0]


def of(spark: str, delta: str = DELTA, **other: str) -> Versions:
    """Versions whose parts fit each other, but for what is said otherwise."""
    series = ".".join(spark.split(".")[:2])
    return Versions(spark, spark, delta, series)._replace(**other)


@pytest.fixture
def other_spark(tmp_path, monkeypatch):
    """Makes the Spark that jobs are started with, by its files, another release than it is."""

    def lay(jars: str, python: str) -> None:
        home = tmp_path / "site-packages" / "pyspark"
        (home / "jars").mkdir(parents=True)
        (home / "version.py").write_text(f"# of it\n\n__version__: str = '{python}'\n")
        if jars:
            (home / "jars" / f"spark-core_2.13-{jars}.jar").touch()
        monkeypatch.setattr(submit, "spark_package", lambda: home)

    monkeypatch.delenv(versions.UNTRIED, raising=False)
    return lay


def test_what_the_project_asks_for_was_tried_and_nothing_is_said_of_it():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements.in").read_text(), re.M))
    assert (pins["pyspark"], pins["delta-spark"]) == TRIED[0]
    assert f"io.delta:delta-spark_{SPARK[:3]}_2.13:{DELTA}" == PACKAGE
    found = installed(submit.spark_package())
    assert found.spark == found.spark_python
    for spark, delta in TRIED:
        refuse_unfit(of(spark, delta))
        assert untried(of(spark, delta)) is None


def test_the_versions_are_those_of_the_files(other_spark, tmp_path):
    other_spark("4.2.7", "4.2.6")
    (tmp_path / "io.delta_delta-spark_4.2_2.13-4.4.9.jar").touch()
    (tmp_path / "io.delta_delta-storage-4.4.8.jar").touch()
    found = installed(tmp_path / "site-packages" / "pyspark", tmp_path)
    assert found == ("4.2.7", "4.2.6", "4.4.9", "4.2")
    assert installed(tmp_path, tmp_path / "none") == ("", "", "", "")


@pytest.mark.parametrize("found", [of("4.2.99"), of(SPARK, "4.4.99")])
def test_a_release_of_a_tried_series_runs_with_a_warning(found):
    refuse_unfit(found)
    assert untried(found) is not None


@pytest.mark.parametrize("found", [of("4.99.0"), of("5.2.0"), of(SPARK, "4.99.0")])
def test_a_series_that_was_never_tried_is_refused_unless_it_is_named(found, monkeypatch):
    for named in ("", "4.98.0"):
        monkeypatch.setenv(versions.UNTRIED, named)
        with refused("untried_versions", subject=versions.UNTRIED):
            refuse_unfit(found)
    monkeypatch.setenv(versions.UNTRIED, found.spark)
    refuse_unfit(found)
    assert untried(found) is not None


@pytest.mark.parametrize(
    "found",
    [
        of("4.2.1", spark_python="4.2.0"),
        of("", spark_python="4.2.0"),
        of("4.99.0", delta_for="4.2"),
    ],
)
def test_parts_that_do_not_fit_are_refused_whatever_is_set(found, monkeypatch):
    monkeypatch.setenv(versions.UNTRIED, found.spark)
    with refused("unfit_versions"):
        refuse_unfit(found)


def test_a_job_is_refused_before_its_jvm_starts(other_spark, lake, monkeypatch, capsys):
    other_spark("4.99.0", "4.99.0")
    monkeypatch.setattr(versions, "DELTA_JAR", re.compile("none"))
    started: list[object] = []
    monkeypatch.setattr(local_jobs, "_run_quietly", lambda *job: started.append(job))
    assert main(["savepoint", "user_counts", "--lake", lake.root]) == 2
    assert "(untried_versions)" in capsys.readouterr().err
    assert started == []


def test_a_task_of_airflow_is_refused_once_as_no_retry_mends_it(other_spark, monkeypatch):
    other_spark("4.2.1", "4.2.0")
    connection = json.dumps({"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    task = spark_task("ingest_source", [], None, task_id="job", name="job")
    with pytest.raises(AirflowFailException):
        task.pre_execute({})


@pytest.mark.parametrize(("spark", "code"), [("4.2.99", 0), ("4.99.0", 1)])
def test_validate_says_it(other_spark, capsys, spark, code):
    other_spark(spark, spark)
    assert main(["validate"]) == code
    assert spark in capsys.readouterr().err
