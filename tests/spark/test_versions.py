"""A Spark and a Delta that do not fit each other are refused before a JVM starts."""

import re
from pathlib import Path

import pytest

from include.cli.__main__ import main
from include.setup.java import DELTA
from include.spark import submit
from include.spark.conf import refuse_unfit
from tests.refused import refused

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def other_spark(tmp_path, monkeypatch):
    """Makes the Spark that jobs are started with, by its files, another release than it is."""

    def lay(jars: str, python: str) -> Path:
        home = tmp_path / "site-packages" / "pyspark"
        (home / "jars").mkdir(parents=True)
        (home / "version.py").write_text(f"# of it\n\n__version__: str = '{python}'\n")
        if jars:
            (home / "jars" / f"spark-core_2.13-{jars}.jar").touch()
        monkeypatch.setattr(submit, "spark_package", lambda: home)
        return home

    return lay


def test_what_the_project_asks_for_fits():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements.in").read_text(), re.M))
    spark, delta = pins["pyspark"], pins["delta-spark"]
    assert [f"io.delta:delta-spark_{spark[:3]}_2.13:{delta}"] == DELTA.packages
    refuse_unfit(submit.spark_package())


@pytest.mark.parametrize(
    ("jars", "python"), [("4.2.1", "4.2.0"), ("", "4.2.0"), ("4.99.0", "4.99.0")]
)
def test_parts_that_do_not_fit_are_refused(other_spark, jars, python):
    with refused("unfit_versions"):
        refuse_unfit(other_spark(jars, python))


def test_a_job_is_refused_before_its_jvm_starts(other_spark, lake, monkeypatch, capsys):
    other_spark("4.99.0", "4.99.0")
    started: list[object] = []
    monkeypatch.setattr(submit, "_run_quietly", lambda *job: started.append(job))
    assert main(["savepoint", "user_counts", "--lake", lake.root]) == 2
    assert "(unfit_versions)" in capsys.readouterr().err
    assert started == []
